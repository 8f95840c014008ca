"""Tests of simpler control flow."""

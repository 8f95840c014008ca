"""Tests of control flow."""

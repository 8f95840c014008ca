"""Tests of recurrent cells in loops."""

"""Rules that nobody wrote: terms of given operators that have equal values, checked, without what other rules imply."""

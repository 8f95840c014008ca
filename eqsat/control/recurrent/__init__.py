"""Loops that only step a recurrent cell, as the operators LSTM, GRU and RNN."""

"""Mixture of experts: routing, dispatch between ranks, and the kernels behind one interface."""

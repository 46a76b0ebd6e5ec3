"""Helpers of the Makefile's verbs; no part of the package."""

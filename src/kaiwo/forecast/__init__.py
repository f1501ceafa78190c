"""Forecast run times and demand from what has happened."""

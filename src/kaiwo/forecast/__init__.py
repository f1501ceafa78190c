"""Forecast run times, demand and starts from what has happened."""

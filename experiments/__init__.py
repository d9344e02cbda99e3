"""Experiments with the estimators on real texts: every number in results/intents-*.json comes from here."""

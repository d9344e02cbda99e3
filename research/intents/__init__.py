"""The estimators on texts of intents: every number in results/intents-*.json comes from here."""

"""The estimators on texts of intents: every number in results/intents/intents-*.json comes from here."""

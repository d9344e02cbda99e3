"""Studies of the classifiers on intent texts; they write results/intents/intents-*.json."""

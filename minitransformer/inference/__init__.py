"""Translation with a trained model, and log-probabilities of given translations."""

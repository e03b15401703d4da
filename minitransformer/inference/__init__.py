"""From a trained model to translations and to the likelihood of given ones."""

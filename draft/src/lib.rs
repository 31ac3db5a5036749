//! Drafters: they guess the next tokens and know nothing of the model.

"""Loading saved models with their optimizers distributed."""

from horovod._keras.optimizer import distribute, is_distributed


def load_model(keras, filepath, custom_optimizers=None, custom_objects=None, compression=None):
    """The saved model. Its optimizer, with the state that was saved, is distributed."""
    known = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        model.optimizer = distribute(optimizer, compression=compression)
        model.train_function = None
    return model

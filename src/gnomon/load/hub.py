"""A model's config.json from the model hub, by its address. Nothing else is fetched, and nothing is run."""

from __future__ import annotations

import re
from pathlib import Path

from gnomon.errors import InputError

_ADDRESS = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
FILES = ("config.json", "transformer/config.json")
"""Where a model keeps its shapes; a pipeline of several keeps those of its transformer in a folder."""
TIMEOUT_S = 10.0


def is_address(ref: str) -> bool:
    """Whether a text could be an address on the hub: an owner and a name."""
    return _ADDRESS.fullmatch(ref) is not None


def installed() -> bool:
    from importlib.util import find_spec

    return find_spec("huggingface_hub") is not None


def fetched(address: str) -> Path:
    """The config of a model on the hub, or of the hub's own cache where it is there already."""
    import huggingface_hub as hub

    for file in FILES:
        found = hub.try_to_load_from_cache(address, file)
        if isinstance(found, str):
            return Path(found)
    if not resolvable(hub.constants.ENDPOINT):
        raise _unreachable(address)
    hub.utils.logging.set_verbosity_error()
    hub.utils.disable_progress_bars()
    return _downloaded(address)


def resolvable(endpoint: str) -> bool:
    """Whether the hub has an address from here. Without one its client tries again for half a minute."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    if getproxies():
        return True
    try:
        return bool(socket.getaddrinfo(urlsplit(endpoint).hostname, 443))
    except OSError:
        return False


def _downloaded(address: str) -> Path:
    import huggingface_hub as hub
    from huggingface_hub import errors

    for file in FILES:
        try:
            return Path(hub.hf_hub_download(address, file, etag_timeout=TIMEOUT_S))
        except errors.LocalEntryNotFoundError:
            raise _unreachable(address) from None
        except errors.EntryNotFoundError:
            continue
        except errors.GatedRepoError:
            hint = "Accept its terms on the hub and log in with `hf auth login`, or give a folder with its config.json."
            message = "the model hub gives it only to those who accepted its terms"
            raise InputError(message, where=address, hint=hint) from None
        except errors.RepositoryNotFoundError:
            hint = "Is it spelled so, and are you logged in if it is private? `gnomon models` lists the known ones."
            raise InputError("the model hub has no such model", where=address, hint=hint) from None
        except (errors.HfHubHTTPError, OSError, ValueError):
            raise _unreachable(address) from None
    hint = "Give the shapes in YAML; see docs/formats.md."
    raise InputError("has no config.json on the model hub", where=address, hint=hint)


def _unreachable(address: str) -> InputError:
    hint = "Give a folder with its config.json, or one of the names that `gnomon models` lists."
    return InputError("the model hub cannot be reached, and its config is not in the cache", where=address, hint=hint)

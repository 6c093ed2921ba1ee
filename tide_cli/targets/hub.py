"""Checkpoints from the Hugging Face hub, through its own client and cache."""

from __future__ import annotations

from pathlib import Path

from tide_cli.errors import TideError


def download(hub_id: str, revision: str | None) -> Path:
    """The local folder of a hub checkpoint; what is already in the hub's cache is not fetched again.

    Raises TideError when the hub can't be reached, refuses, or does not know the id.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=patterns))
    except GatedRepoError:
        raise TideError(
            f"{hub_id} is gated", remedy=f"accept its terms on the hub, then `hf auth login`, then try again ({hub_id})"
        ) from None
    except RepositoryNotFoundError:
        raise TideError(f"the hub has no {hub_id}", remedy="check the name, or pass a checkpoint folder") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise TideError(
            f"{hub_id} is not in the local cache and the hub cannot be reached",
            why=str(error).splitlines()[0][:200],
            remedy="connect, or pass a checkpoint folder with --target FOLDER",
        ) from None

"""The server with a real encoder: each text's own mean, of length 1, whatever it is asked with."""

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from tests.support.sentence_server import encoder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "refund", "my", "order", "please", "now"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two small layers, as sentence-transformers would save it."""
    place = tmp_path_factory.mktemp("model")
    (place / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    BertModel(shape).save_pretrained(place)
    BertTokenizer(vocab=str(place / "vocab.txt")).save_pretrained(place)
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return place


def vectors(script: object, texts: object) -> torch.Tensor:
    status, body = script({"input": texts, "model": "m"})  # type: ignore[operator]
    assert status == 200
    return torch.tensor([one["embedding"] for one in sorted(json.loads(body)["data"], key=lambda one: one["index"])])


def test_that_a_text_has_its_own_vector_of_length_1_beside_longer_ones(directory: Path) -> None:
    texts = ["refund my order please now", "order", "refund my order please now", "now refund"]
    found = vectors(encoder(directory), texts)
    alone = torch.cat([vectors(encoder(directory), text) for text in texts])
    assert torch.allclose(found, alone, atol=1e-5)
    assert torch.allclose(found.norm(dim=1), torch.ones(4), atol=1e-5)
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[1], atol=1e-2)


def test_that_a_model_of_another_kind_is_refused_by_name(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no model\.safetensors"):
        encoder(tmp_path)
    pooling = directory / "1_Pooling" / "config.json"
    before = pooling.read_text()
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True}))
    try:
        with pytest.raises(SystemExit, match="no means over tokens"):
            encoder(directory)
    finally:
        pooling.write_text(before)

"""What is said in a query."""

import pytest

from kedge.server.errors import BadRequest
from kedge.server.requests import parsed_query


def test_a_key_that_is_there_twice_is_refused() -> None:
    """It is named, and looking for it among very many takes no longer than reading them."""
    many = b"&".join(b"%d=" % number for number in range(100_000))
    assert len(parsed_query(many)) == 100_000
    with pytest.raises(BadRequest, match=r'got several\n  at \["twice"\]'):
        parsed_query(many + b"&twice=1&twice=2")

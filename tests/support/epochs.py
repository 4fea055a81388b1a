"""The lease epoch that an engine has seen: what tests load by themselves must not come with a smaller one."""

import httpx


def seen_epoch(url: str, key: str = "") -> int:
    """The greatest at `url`; 0 if it has no plug-in, which is what looks at epochs."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = httpx.post(f"{url}/collective_rpc", json={"method": "evolved_info"}, headers=headers, timeout=30.0)
    if answer.status_code != 200:
        return 0
    found = answer.json().get("results") or []
    return max((int(one.get("epoch", 0)) for one in found if isinstance(one, dict)), default=0)

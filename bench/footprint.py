"""How long a start takes and how much memory an idle product holds."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench import report
from bench.served import Person, Product


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sayso-bench-") as folder:
        product = Product(Path(folder))
        report.heading("Start and memory")
        try:
            print(f"first start to a served page   {product.start():6.2f} s")
            product.stop()
            print(f"second start to a served page  {product.start():6.2f} s   goal: 3")
            time.sleep(2)
            print(f"idle                           {product.resident_mb():6.0f} MB")
            member = Person(product, "member")
            member.http.get("/agents/")
            print(
                f"after pages were read          {product.resident_mb():6.0f} MB"
                "   goal: 150"
            )
            member.say("list the files")
            time.sleep(3)
            print(f"after a run of file-ops        {product.resident_mb():6.0f} MB")
        finally:
            product.stop()

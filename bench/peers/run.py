#!/usr/bin/python3
"""Measures poolgrad and its peers on the same cases, cell by cell in turn, and writes one JSON object per line.

Every peer is one long-lived driver process that answers questions (cell.h), so nobody pays for start-up, and each cell
of ours is measured just before the peers' same cell. All use the same buffer policy and the same copy bandwidth.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import cells  # noqa: E402

ROOT = HERE.parent.parent
BUILT = ROOT / "build" / "peers"
OPS = ("fwd", "train", "bwd")


class Peer:
    """A driver process. A driver that cannot start or dies is left out, with one line on stderr that says why."""

    def __init__(self, name, command, threads):
        self.name = name
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), POOLGRAD_PEERS_NODE=str(BUILT / "node"))
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        except OSError as error:
            self.process = None
            print(f"{name} is left out: {error}", file=sys.stderr)

    def ask(self, question):
        """(ms, spread), or None where the peer cannot."""
        if self.process is None:
            return None
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().split()
        except BrokenPipeError:
            answer = []
        if not answer:
            print(f"{self.name} is left out from here on: its driver ended with {self.process.wait()}", file=sys.stderr)
            self.process = None
            return None
        return None if answer[0] == "no" else (float(answer[0]), float(answer[1]))

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def first_line(*command):
    """What a command prints first, or nothing where it is not there or fails."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.splitlines()[0].strip() if result.returncode == 0 and result.stdout else ""


def cpu_model():
    for line in subprocess.run(["lscpu"], stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def about(options, bandwidth):
    """Everything a reader of the tables needs to know about where they come from."""
    version = ("dpkg-query", "-W", "-f", "${Version}\\n")
    ort = BUILT / "node" / "node_modules" / "onnxruntime-node" / "package.json"
    versions = {
        "poolgrad": first_line(options.poolgrad, "--version").removeprefix("poolgrad "),
        "oneDNN": first_line(*version, "libdnnl-dev"),
        "XNNPACK": first_line(*version, "libxnnpack-dev"),
        "PyTorch": first_line(sys.executable, "-c", "import torch; print(torch.__version__)"),
        "ONNX Runtime": json.loads(ort.read_text())["version"] if ort.exists() else "",
    }
    return {
        "about": f"{cpu_model()}, {os.cpu_count()} cores",
        "date": datetime.date.today().isoformat(),
        "versions": {name: text for name, text in versions.items() if text},
        **bandwidth,
    }


def commands():
    torch, node = [sys.executable, str(HERE / "torch_peer.py")], ["node", str(HERE / "ort.mjs")]
    return {
        "onednn": [str(BUILT / "drivers" / "peer_onednn")],
        "xnnpack": [str(BUILT / "drivers" / "peer_xnnpack")],
        "torch": torch + ["torch"],
        "torch_out": torch + ["torch_out"],
        "torch_amax": torch + ["torch_amax"],
        "ort": node + ["ort"],
        "ort_global": node + ["ort_global"],
    }


def ours(options, arguments):
    command = [options.poolgrad, "bench", "--json", "--threads", str(options.threads), *arguments]
    return [
        json.loads(line)
        for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--poolgrad", default=str(ROOT / "build/release/cli/poolgrad"), help="the built command line")
    parser.add_argument("--family", default="peers", help="a list of cases/, or random")
    parser.add_argument("--count", type=int, default=50, help="how many random cases")
    parser.add_argument("--seed", type=int, default=1, help="what draws them")
    parser.add_argument("--case", help="comma-separated; default all")
    parser.add_argument("--layout", default="nchw,nhwc")
    parser.add_argument("--dtype", default="f32,bf16,f16")
    parser.add_argument("--op", default=",".join(OPS))
    parser.add_argument("--peer", default=",".join(commands()), help="comma-separated; default all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.2, help="for each cell")
    parser.add_argument("--cache-mib", type=int, help="last-level cache; default what the system says")
    parser.add_argument("--out", default=str(BUILT / "results.jsonl"), help="where the lines go")
    parser.add_argument("--append", action="store_true", help="keep the lines that are there")
    options = parser.parse_args()

    bandwidth = ours(options, ["--bandwidth"])[0]
    cache_mib = options.cache_mib or bandwidth["cache_mib"]
    peers = [Peer(name, commands()[name], options.threads) for name in options.peer.split(",") if name]
    drawn = ["--count", str(options.count), "--seed", str(options.seed)] if options.family == "random" else []
    family = (
        cells.read_random(options.poolgrad, options.count, options.seed) if drawn else cells.read_family(options.family)
    )
    chosen = [c for c in family if not options.case or c.name in options.case.split(",")]
    pathlib.Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    with open(options.out, "a" if options.append else "w", encoding="utf-8") as out:

        def write(record):
            out.write(json.dumps(record) + "\n")
            out.flush()

        write(about(options, bandwidth))
        for dtype in options.dtype.split(","):
            for case in chosen:
                for layout in options.layout.split(","):
                    print(f"{case.name} {layout} {dtype}", file=sys.stderr)
                    records = ours(
                        options,
                        [
                            "--family",
                            options.family,
                            *drawn,
                            "--case",
                            case.name,
                            "--layout",
                            layout,
                            "--dtype",
                            dtype,
                            "--op",
                            options.op,
                            "--seconds",
                            str(options.seconds),
                            "--copy-gbps",
                            str(bandwidth["copy_gbps"]),
                            "--cache-mib",
                            str(cache_mib),
                        ],
                    )
                    for record in records:
                        write(record)
                        op = record["op"]
                        question = case.question(op, dtype, layout, options.threads, options.seconds, cache_mib)
                        for peer in peers:
                            answer = peer.ask(question)
                            if answer is None:
                                continue
                            ms, spread = answer
                            same = {
                                key: record[key] for key in ("case", "layout", "dtype", "op", "threads", "copy_gbps")
                            }
                            write(
                                {
                                    **same,
                                    "ms": ms,
                                    "spread": spread,
                                    "fraction": round(record["fraction"] * record["ms"] / ms, 4),
                                    "peer": peer.name,
                                }
                            )
    for peer in peers:
        peer.stop()


if __name__ == "__main__":
    main()

"""The benchmark's scripts on made-up lines: what counts as slower, which peer is best, how a case is asked about."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import cells  # noqa: E402


def line(ms, peer="poolgrad", spread=0.01, case="vgg1", op="fwd"):
    return json.dumps(
        {
            "case": case,
            "layout": "nchw",
            "dtype": "f32",
            "op": op,
            "threads": 2,
            "ms": ms,
            "spread": spread,
            "fraction": 0.5,
            "copy_gbps": 100,
            "peer": peer,
        }
    )


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def save(self, name, *lines):
        path = pathlib.Path(self.folder.name) / name
        path.write_text("".join(text + "\n" for text in lines))
        return str(path)

    def run_script(self, name, *words):
        return subprocess.run([sys.executable, str(BENCH / name), *words], capture_output=True, text=True, check=False)

    def test_a_change_beyond_noise_is_told(self):
        before = self.save("before", line(1.0), line(2.0, op="bwd"))
        self.assertEqual(
            self.run_script("compare.py", before, self.save("a", line(1.03), line(2.0, op="bwd"))).returncode, 0
        )
        slower = self.run_script("compare.py", before, self.save("b", line(1.2), line(1.0, op="bwd")))
        self.assertEqual(slower.returncode, 1)
        self.assertIn("1 slower, 1 faster, 0 the same of 2 cells", slower.stdout)

    def test_noise_is_no_change(self):
        before = self.save("before", line(1.0, spread=0.2))
        self.assertEqual(self.run_script("compare.py", before, self.save("after", line(1.2, spread=0.2))).returncode, 0)
        runs = self.save("runs", line(1.0), line(1.5), line(1.2))  # runs that differ among themselves
        self.assertEqual(self.run_script("compare.py", before, runs).returncode, 0)

    def test_files_without_a_common_cell(self):
        result = self.run_script("compare.py", self.save("a", line(1.0)), self.save("b", line(1.0, case="other")))
        self.assertEqual(result.returncode, 2)

    def test_the_best_peer_counts(self):
        path = self.save(
            "results",
            line(1.0),
            line(4.0, "onednn"),
            line(2.0, "torch"),
            line(1.0, op="train"),
            line(8.0, "torch", op="train"),
        )
        rows = [json.loads(text) for text in self.run_script("report.py", path, "--json").stdout.splitlines()]
        self.assertEqual((rows[0]["best_peer"], rows[0]["ratio"]), ("torch", 2.0))
        means = {
            row["op"]: row["geometric_mean"] for row in rows if "geometric_mean" in row and row["layout"] == "both"
        }
        self.assertAlmostEqual(means["train"], 8.0)
        chart = pathlib.Path(self.folder.name) / "chart.svg"
        self.assertEqual(self.run_script("report.py", path, "--svg", str(chart)).returncode, 0)
        self.assertIn("vgg1 nchw forward: 2.00 times torch", chart.read_text())

    def test_tables_go_between_the_marks(self):
        page = pathlib.Path(self.save("page.md", "before", "<!-- tables -->", "old", "<!-- /tables -->", "after"))
        results = self.save("results", line(1.0), line(3.0, "torch"))
        self.assertEqual(self.run_script("report.py", results, "--into", str(page)).returncode, 0)
        text = page.read_text()
        self.assertTrue(text.startswith("before\n<!-- tables -->\n") and text.endswith("<!-- /tables -->\nafter\n"))
        self.assertIn("**3.0×** torch", text)
        self.assertNotIn("old", text)
        self.assertNotEqual(self.run_script("report.py", results, "--into", results).returncode, 0)

    def test_every_case_can_be_asked(self):
        for family in ("peers", "shapes"):
            for case in cells.read_family(family):
                words = case.question("fwd", "f32", "nchw", 2, 0.1, 32).split()
                self.assertEqual(len(words), 9 + 21, case.name)
        by_name = {case.name: case for case in cells.read_family("peers")}
        self.assertEqual(by_name["googlenet_ceil"].axes[0].question(), [56, 28, 3, 2, 0, 1, 1])
        self.assertEqual([axis.out for axis in by_name["c3d"].axes], [16, 56, 56])
        self.assertEqual(by_name["tiny"].sets("f32", 32), 1)
        self.assertGreater(by_name["global"].sets("f32", 32) * 3.3, 4 * 32)


if __name__ == "__main__":
    unittest.main()

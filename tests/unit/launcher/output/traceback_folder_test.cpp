// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/traceback_folder.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

std::string fold(const std::string& text, std::size_t piece = std::string::npos, int rank = 3) {
  TracebackFolder folder(rank);
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += std::min(piece, text.size())) {
    out += folder.feed(std::string_view(text).substr(at, piece));
  }
  return out + folder.release();
}

const std::string kOwnFrames =
    "  File \"/c/python/hora/numpy.py\", line 52, in allreduce\n"
    "    return run(tensor,\n"
    "           ^^^^^^^^^^^\n";
const std::string kFollows =
    "Traceback (most recent call last):\n"
    "  File \"/home/me/train.py\", line 41, in <module>\n"
    "    main()\n"
    "  File \"/home/me/train.py\", line 12, in step\n"
    "    hvd.allreduce(x)\n"
    "  File \"/usr/lib/python3.11/contextlib.py\", line 81, in inner\n"
    "    return func(*args, **kwds)\n" +
    kOwnFrames +
    "hora.exceptions.HorovodInternalError: allreduce 'grad': rank 1 (b) has shut down\n";
const std::string kOneLine =
    "rank 3 failed because of rank 1: /home/me/train.py:12, in step: hvd.allreduce(x): "
    "HorovodInternalError: "
    "allreduce 'grad': rank 1 (b) has shut down";
const std::string kMore = " (--verbose: the traceback)\n";

TEST_CASE("A traceback that names another rank is one line, however it comes") {
  for (const std::size_t piece : {1ul, 7ul, 100ul, std::string::npos}) {
    CHECK(fold("before\n" + kFollows + "after\n", piece) ==
          "before\n" + kOneLine + kMore + "after\n");
  }
  const std::string other = "rank 1 (b) is gone: Connection reset by peer";
  CHECK(fold("Traceback (most recent call last):\n  File \"t.py\", line 1, in f\n    x\n"
             "pkg.MyError: no step: " +
             other + "\n") ==
        "rank 3 failed because of rank 1: t.py:1, in f: x: MyError: no step: " + other + kMore);
  CHECK(fold("[rank3]: Traceback (most recent call last):\n[rank3]:   File \"t.py\", line 1, in f\n"
             "[rank3]: RuntimeError: " +
             other + "\n") ==
        "rank 3 failed because of rank 1: t.py:1, in f: RuntimeError: " + other + kMore);
  CHECK(fold("Exception in thread Thread-1 (f):\n" + kFollows) == kOneLine + kMore);
}

TEST_CASE("Of a chain of exceptions the first one says why") {
  const std::string link =
      "\nDuring handling of the above exception, another exception occurred:\n\n";
  const std::string cause =
      "\nThe above exception was the direct cause of the following exception:\n\n";
  const std::string own =
      "Traceback (most recent call last):\n  File \"t.py\", line 9, in g\n    f()\n"
      "ValueError: bad batch\n";
  CHECK(fold(kFollows + cause + own) == kOneLine + "; then ValueError: bad batch" + kMore);
  for (const std::size_t piece : {1ul, 33ul}) {
    CHECK(fold(kFollows + link + own + "\n", piece) ==
          kOneLine + "; then ValueError: bad batch" + kMore);
  }
  // This rank's own failure began it.
  const std::string kept = own + link + kFollows;
  CHECK(fold(kept).find("ValueError: bad batch\n") != std::string::npos);
  CHECK(fold(kept).find("failed because of") == std::string::npos);
}

TEST_CASE("Everything else passes as it came") {
  const std::string own = "Traceback (most recent call last):\n  File \"t.py\", line 9, in g\n" +
                          kOwnFrames + "ValueError: bad batch\n";
  for (const std::string& text : std::vector<std::string>{
           own, "a\nb", "Trace", "Traceback\n", "\n\n", "Exception in thread x\nno\n",
           "Traceback (most recent call last):\n  File \"t.py\", line 9, in g\n", own + "\nmore\n",
           "Traceback (most recent call last):\nTraceback (most recent call last):\n",
           "\r5%\r6%"}) {
    for (const std::size_t piece : {1ul, 5ul, std::string::npos}) CHECK(fold(text, piece) == text);
  }
  // A rank that names itself is the cause. Its own packages' frames say nothing.
  const std::string shown = fold(kFollows, std::string::npos, 1);
  CHECK(shown.find("/python/hora/") == std::string::npos);
  CHECK(shown.find("line 41, in <module>") != std::string::npos);
  CHECK(shown.find("has shut down\n") != std::string::npos);
}

TEST_CASE("Ctrl-C shows where the program was, and not where Hora was") {
  const std::string own =
      "Traceback (most recent call last):\n  File \"t.py\", line 9, in g\n    hvd.barrier()\n";
  CHECK(fold(own + kOwnFrames + "KeyboardInterrupt\n") == own + "KeyboardInterrupt\n");
}

TEST_CASE("What may become a traceback is held, and within bounds") {
  TracebackFolder folder(0);
  CHECK(folder.feed("x\nTraceback (most rec") == "x\n");
  CHECK(folder.holds());
  CHECK(folder.release() == "Traceback (most rec");
  CHECK_FALSE(folder.holds());
  CHECK(folder.feed("ent call last):\nx\n") == "ent call last):\nx\n");
  std::string out;
  std::size_t fed = 0;
  out += folder.feed("Traceback (most recent call last):\n");
  while (out.empty() && fed < 4 * TracebackFolder::kMostHeldBytes) {
    out += folder.feed("    a line\n");
    fed += 11;
  }
  CHECK(fed <= TracebackFolder::kMostHeldBytes + 11);
}

}  // namespace
}  // namespace hora::launcher

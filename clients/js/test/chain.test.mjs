import assert from "node:assert/strict";
import { test } from "node:test";
import { pauseBefore } from "../dist/backoff.js";
import { Chain } from "../dist/chain.js";
import { decodeFrame, isAfter } from "../dist/wire.js";
import { cursor, ev } from "./fake.mjs";

test("a chain takes what follows and nothing else", () => {
  for (const { name, after, frames, want, at } of [
    { name: "from the beginning", after: "-1", frames: [ev("c", 1), ev("c", 4, 1)], want: ["next", "next"], at: cursor(4) },
    { name: "a repeat", after: cursor(3), frames: [ev("c", 3, 2), ev("c", 4, 3)], want: ["again", "next"], at: cursor(4) },
    { name: "a hole", after: cursor(3), frames: [ev("c", 6, 5)], want: ["hole"], at: cursor(3) },
    { name: "a hole at the beginning", after: "-1", frames: [ev("c", 6, 5)], want: ["hole"], at: "-1" },
    { name: "a new epoch that nobody told of", after: cursor(3, "e0"), frames: [ev("c", 4, 3)], want: ["hole"], at: cursor(3, "e0") },
    { name: "no word of what was before", after: cursor(3), frames: [{ ...ev("c", 4), prev: undefined }], want: ["hole"], at: cursor(3) },
  ]) {
    const chain = new Chain(after);
    assert.deepEqual(frames.map((f) => chain.judge(f)), want, name);
    assert.equal(chain.at, at, name);
  }
});

test("a gap that was owned up to is stepped over once", () => {
  const chain = new Chain(cursor(3, "e0"));
  chain.skip(cursor(0));
  assert.equal(chain.judge({ ...ev("c", 9), prev: cursor(3, "e0") }), "next");
  assert.equal(chain.judge(ev("c", 12, 11)), "hole");
});

test("now is the head of the first answer", () => {
  const chain = new Chain("now");
  chain.begin(cursor(7));
  assert.equal(chain.at, cursor(7));
  assert.equal(chain.judge(ev("c", 8)), "next");
});

test("a replay that left out its end goes on behind it", () => {
  const chain = new Chain("-1");
  chain.judge(ev("c", 2, 0));
  chain.caughtUp(cursor(5));
  assert.equal(chain.judge(ev("c", 6, 5)), "next");
  chain.caughtUp(cursor(1));
  assert.equal(chain.at, cursor(6));
});

test("cursors are compared within an epoch", () => {
  assert.ok(isAfter(cursor(10), cursor(9)));
  assert.ok(!isAfter(cursor(9), cursor(9)));
  assert.ok(!isAfter(cursor(9, "e2"), cursor(1)));
  assert.ok(isAfter(cursor(1), "-1"));
  assert.ok(!isAfter("-1", cursor(1)));
});

test("pauses double up to a bound and fill the whole of it", () => {
  const b = { first: 500, most: 30_000 };
  const most = [0, 1, 2, 6, 7, 1000].map((n) => pauseBefore(n, b, () => 0.9999999));
  assert.deepEqual(most, [499, 999, 1999, 29_999, 29_999, 29_999]);
  assert.equal(pauseBefore(5, b, () => 0), 0);
});

test("what is no frame is none", () => {
  for (const text of ["", "null", "3", "[]", '"x"', "{}", '{"op":1}', "{"]) assert.equal(decodeFrame(text), undefined, text);
  assert.equal(decodeFrame('{"op":"pong"}').op, "pong");
});

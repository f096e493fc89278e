/** Streams that the gateway really sent (tests/web/test_recordings.py writes them), for tests. */

import { readFileSync } from "node:fs";
import { FrameParser } from "../api/sse.ts";
import type { StreamEvent } from "../api/types.ts";

/** Return the events of a recording. */
export function recorded(name: string): StreamEvent[] {
  const text = readFileSync(new URL(`./recordings/${name}.sse`, import.meta.url), "utf8");
  return new FrameParser().push(text).map((frame) => ({ kind: frame.event, data: JSON.parse(frame.data) as unknown, id: frame.id }));
}

/** Reads server-sent events from a fetch response: any framing, any split, heartbeats included. */

import { ApiError } from "./client.ts";
import type { StreamEvent } from "./types.ts";

/** The server sends a heartbeat every 15 s; three missed ones mean that the line is dead. */
export const SILENCE_MS = 45_000;

interface Frame {
  readonly event: string;
  readonly data: string;
  readonly id: string | undefined;
}

/** Turns pieces of text into frames; a piece may end anywhere, also between CR and LF. */
export class FrameParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #id: string | undefined;
  #sawReturn = false;

  push(text: string): Frame[] {
    if (text === "") return [];
    const piece = this.#sawReturn && text.startsWith("\n") ? text.slice(1) : text;
    this.#sawReturn = piece.endsWith("\r");
    const lines = piece.split(/\r\n|\n|\r/);
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop() ?? "";
    const frames: Frame[] = [];
    for (const line of lines) {
      const frame = this.#take(line);
      if (frame) frames.push(frame);
    }
    return frames;
  }

  #take(line: string): Frame | null {
    if (line === "") return this.#dispatch();
    if (line.startsWith(":")) return null;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return null;
  }

  #dispatch(): Frame | null {
    const frame = this.#event || this.#data.length > 0
      ? { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id }
      : null;
    this.#event = "";
    this.#data = [];
    this.#id = undefined; // ours to keep per frame: a frame without one must not move the place to resume from
    return frame;
  }
}

/** Yield the events of `response` until it closes; throws an `ApiError` when the line goes silent or breaks. */
export async function* readEvents(
  response: Response,
  signal: AbortSignal,
  silenceMs = SILENCE_MS,
): AsyncGenerator<StreamEvent, void, undefined> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new FrameParser();
  try {
    while (!signal.aborted) {
      const { done, value } = await withinTime(reader.read(), silenceMs);
      if (done) return;
      for (const frame of parser.push(decoder.decode(value, { stream: true }))) {
        yield { kind: frame.event, data: parse(frame.data), ...(frame.id === undefined ? {} : { id: frame.id }) };
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function withinTime<T>(reading: Promise<T>, milliseconds: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new ApiError(0, "The server went silent.")), milliseconds);
  });
  return Promise.race([reading, silence]).finally(() => clearTimeout(timer));
}

function parse(data: string): unknown {
  if (data === "") return null;
  try {
    return JSON.parse(data);
  } catch {
    return data; // not ours to judge: the reducer ignores what it does not know
  }
}

import { describe, expect, test } from "vitest";
import { ApiError } from "./client.ts";
import { FrameParser, readEvents } from "./sse.ts";

const STREAM = 'event: metadata\ndata: {"run_id":"r"}\nid: 1-0\n\n: heartbeat\n\nevent: messages\ndata: [1,\ndata: 2]\nid: 1-1\n\nevent: end\ndata: null\n\n';

function responseOf(...pieces: Uint8Array[]): Response {
  return new Response(
    new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(piece);
        controller.close();
      },
    }),
  );
}

async function eventsOf(response: Response) {
  const events = [];
  for await (const event of readEvents(response, new AbortController().signal)) events.push(event);
  return events;
}

describe("frames", () => {
  const expected = [
    { event: "metadata", data: '{"run_id":"r"}', id: "1-0" },
    { event: "messages", data: "[1,\n2]", id: "1-1" },
    { event: "end", data: "null", id: undefined },
  ];

  test("are the same wherever the stream is split, with any kind of line end", () => {
    for (const text of [STREAM, STREAM.replaceAll("\n", "\r\n"), STREAM.replaceAll("\n", "\r")]) {
      for (const size of [1, 2, 3, 7, text.length]) {
        const parser = new FrameParser();
        const pieces = Array.from({ length: Math.ceil(text.length / size) }, (_, at) => text.slice(at * size, (at + 1) * size));

        const frames = pieces.flatMap((piece) => parser.push(piece));

        expect(frames).toEqual(expected);
      }
    }
  });

  test("without data or name are no frames", () => {
    expect(new FrameParser().push(": hello\n\n\n\nid: 4\n\nretry: 10\n\n")).toEqual([]);
  });
});

describe("reading", () => {
  test("puts characters together that were cut in half", async () => {
    const bytes = new TextEncoder().encode('event: custom\ndata: {"text":"鹿🦌"}\n\n');
    const pieces = Array.from(bytes, (byte) => new Uint8Array([byte]));

    const events = await eventsOf(responseOf(...pieces));

    expect(events).toEqual([{ kind: "custom", data: { text: "鹿🦌" } }]);
  });

  test("keeps data that is not JSON as text", async () => {
    const events = await eventsOf(responseOf(new TextEncoder().encode("event: error\ndata: oh {no\n\n")));

    expect(events).toEqual([{ kind: "error", data: "oh {no" }]);
  });

  test("gives up a line that has gone silent", async () => {
    const silent = new Response(new ReadableStream({ start() {} }));

    const reading = readEvents(silent, new AbortController().signal, 5).next();

    await expect(reading).rejects.toBeInstanceOf(ApiError);
  });
});

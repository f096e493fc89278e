import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Message } from "../api/types.ts";
import { Conversation } from "./conversation.ts";
import { textOf } from "./messages.ts";

const MESSAGE: Message = { type: "human", id: "h", content: "Hello?" };
const CONTEXT = { thinking_enabled: true, is_plan_mode: false, subagent_enabled: true, max_concurrent_subagents: 3, locale: "en-US" };

type Handler = (request: { method: string; path: string; headers: Headers }) => Response | Promise<Response>;

const frame = (event: string, data: unknown, id: number): string => `event: ${event}\ndata: ${JSON.stringify(data)}\nid: 1-${id}\n\n`;
const chunk = (text: string, id: number): string => frame("messages", [{ type: "AIMessageChunk", id: "a", content: text }, {}], id);
const stream = (...frames: string[]): Response => new Response(frames.join(""), { headers: { "Content-Location": "/api/threads/t/runs/r1" } });
const json = (body: unknown, status = 200): Response => new Response(JSON.stringify(body), { status });
const start = frame("metadata", { run_id: "r1" }, 0);
const values = (text: string): unknown => ({ messages: [MESSAGE, { type: "ai", id: "a", content: text }] });

/** Answer requests by `METHOD path`; a list answers one after the other. */
function serve(routes: Record<string, Handler | Handler[]>): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit = {}) => {
    const bare = path.replace(/^\/api/, "").replace(/\?.*$/, "");
    const key = `${init.method ?? "GET"} ${bare}`;
    const headers = new Headers(init.headers);
    asked.push(headers.has("Last-Event-ID") ? `${key} ${headers.get("Last-Event-ID")}` : key);
    const route = routes[key];
    const handler = Array.isArray(route) ? route.shift() : route;
    return handler ? handler({ method: init.method ?? "GET", path, headers }) : json({ detail: "Not Found" }, 404);
  });
  return asked;
}

/** Let time pass until `work` is done. */
async function through<T>(work: Promise<T>): Promise<T> {
  let isDone = false;
  const settled = work.finally(() => (isDone = true));
  settled.catch(() => undefined);
  while (!isDone) await vi.advanceTimersByTimeAsync(250);
  return settled;
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const created = { "POST /threads": () => json({ thread_id: "t" }) };

describe("a conversation", () => {
  test("goes on behind the last event when the stream breaks off", async () => {
    const asked = serve({
      ...created,
      "POST /threads/t/runs/stream": () => stream(start, chunk("one ", 1)),
      "GET /threads/t/runs/r1/stream": [() => json({ detail: "busy" }, 503), () => stream(chunk("two", 2), frame("end", null, 3))],
    });
    const conversation = new Conversation("t");

    await through(conversation.send(MESSAGE, CONTEXT));

    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "one two"]);
    expect(conversation.read().status).toBe("idle");
    expect(asked.at(-1)).toBe("GET /threads/t/runs/r1/stream 1-1");
  });

  test("reads the state when the server has dropped events, then goes on from its newest", async () => {
    const gap = frame("gap", { latest_available_event_id: "1-7" }, 0).replace(/id: .*\n/, "");
    const asked = serve({
      ...created,
      "POST /threads/t/runs/stream": () => stream(start),
      "GET /threads/t/runs/r1/stream": [() => stream(gap), () => stream(frame("end", null, 8))],
      "GET /threads/t/runs/r1": () => json({ run_id: "r1", status: "running" }),
      "GET /threads/t/state": () => json({ values: values("so far") }),
    });
    const conversation = new Conversation("t");

    await through(conversation.send(MESSAGE, CONTEXT));

    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "so far"]);
    expect(asked.at(-1)).toBe("GET /threads/t/runs/r1/stream 1-7");
  });

  test("ends with the state of a run that is over without an end event", async () => {
    serve({
      ...created,
      "POST /threads/t/runs/stream": () => stream(start),
      "GET /threads/t/runs/r1/stream": () => stream(),
      "GET /threads/t/runs/r1": () => json({ run_id: "r1", status: "success" }),
      "GET /threads/t/state": () => json({ values: values("whole") }),
    });
    const conversation = new Conversation("t");

    await through(conversation.send(MESSAGE, CONTEXT));

    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "whole"]);
    expect(conversation.read().status).toBe("idle");
  });

  test("says why the server refused, and sends the same message again on retry", async () => {
    serve({
      ...created,
      "POST /threads/t/runs/stream": [
        () => json({ detail: "model 'x' not found" }, 404),
        () => stream(start, frame("values", values("yes"), 1), frame("end", null, 2)),
      ],
    });
    const conversation = new Conversation("t");
    await through(conversation.send(MESSAGE, CONTEXT));
    expect(conversation.read()).toMatchObject({ status: "failed", failure: { name: "http_404", message: "model 'x' not found" } });

    await through(conversation.retry(CONTEXT));

    expect(conversation.read().failure).toBeNull();
    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "yes"]);
  });

  test("that is stopped before its run has a name stops it as soon as it has one", async () => {
    let open: (response: Response) => void = () => undefined;
    const asked = serve({
      ...created,
      "POST /threads/t/runs/stream": () => new Promise<Response>((resolve) => (open = resolve)),
      "POST /threads/t/runs/r1/cancel": () => json(null, 202),
    });
    const conversation = new Conversation("t");
    const sending = conversation.send(MESSAGE, CONTEXT);
    await vi.waitFor(() => expect(asked).toContain("POST /threads/t/runs/stream"));

    await conversation.stop();
    open(stream(start, frame("end", null, 1)));
    await through(sending);

    expect(asked).toContain("POST /threads/t/runs/r1/cancel");
    expect(conversation.read().status).toBe("stopped");
  });

  test("that cannot reach the server with its stop tries until it can, and calls nothing a failure", async () => {
    let open: (response: Response) => void = () => undefined;
    const asked = serve({
      ...created,
      "POST /threads/t/runs/stream": () => stream(start, chunk("one", 1)),
      "GET /threads/t/runs/r1/stream": () => new Promise<Response>((resolve) => (open = resolve)),
      "POST /threads/t/runs/r1/cancel": [() => json({ detail: "busy" }, 503), () => json(null, 202)],
    });
    const conversation = new Conversation("t");
    const sending = conversation.send(MESSAGE, CONTEXT);
    await vi.advanceTimersByTimeAsync(5000);
    expect(asked).toContain("GET /threads/t/runs/r1/stream 1-1");

    await through(conversation.stop());
    open(stream(frame("end", null, 2)));
    await through(sending);

    expect(asked.filter((each) => each.endsWith("/cancel"))).toHaveLength(2);
    expect(conversation.read()).toMatchObject({ status: "stopped", failure: null });
  });

  test("sends answers again that did not arrive, not what was said before them", async () => {
    const asked = serve({
      "GET /threads/t/state": () => json({ values: { messages: [MESSAGE] }, interrupts: [{ id: "i", value: null }] }),
      "GET /threads/t/runs": () => json([]),
      "POST /threads/t/runs/stream": [() => json({ detail: "down" }, 503), () => stream(start, frame("end", null, 1))],
    });
    const bodies: unknown[] = [];
    const { fetch } = globalThis;
    vi.stubGlobal("fetch", (path: string, init: RequestInit = {}) => {
      if (init.method === "POST") bodies.push(JSON.parse(String(init.body)));
      return fetch(path, init);
    });
    const conversation = new Conversation("t");
    await through(conversation.open());
    await through(conversation.answer({ i: "yes" }, CONTEXT));
    expect(conversation.read().status).toBe("failed");

    await through(conversation.retry(CONTEXT));

    expect(bodies).toMatchObject([{ command: { resume: { i: "yes" } } }, { command: { resume: { i: "yes" } } }]);
    expect(conversation.read()).toMatchObject({ status: "idle", failure: null });
    expect(asked.at(-1)).toBe("POST /threads/t/runs/stream");
  });

  test("keeps what is said while it is still being opened", async () => {
    let answer: (response: Response) => void = () => undefined;
    const later = new Promise<Response>((resolve) => (answer = resolve));
    let open: (response: Response) => void = () => undefined;
    serve({
      "GET /threads/t/state": () => later,
      "GET /threads/t/runs": () => json([]),
      "POST /threads/t/runs/stream": () => new Promise<Response>((resolve) => (open = resolve)),
    });
    const conversation = new Conversation("t");
    const opening = conversation.open();
    const sending = conversation.send(MESSAGE, CONTEXT);

    answer(json({ values: { messages: [] } }));
    await through(opening);

    expect(conversation.read()).toMatchObject({ status: "starting" });
    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?"]);
    open(stream(start, frame("values", values("yes"), 1), frame("end", null, 2)));
    await through(sending);
    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "yes"]);
  });

  test("that could not be opened shows no trace of that once it can", async () => {
    serve({
      "GET /threads/t/state": [() => json({ detail: "down" }, 503), () => json({ values: values("here") })],
      "GET /threads/t/runs": () => json([]),
    });
    const conversation = new Conversation("t");
    await through(conversation.open());
    expect(conversation.read().failure).not.toBeNull();

    await through(conversation.retry(CONTEXT));

    expect(conversation.read()).toMatchObject({ status: "idle", failure: null });
    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "here"]);
  });

  test("that could not be read again says nothing again when it is told to retry", async () => {
    const asked = serve({
      "GET /threads/t/state": [() => json({ values: values("old") }), () => json({ detail: "down" }, 503), () => json({ values: values("new") })],
      "GET /threads/t/runs": [() => json([{ run_id: "r1", status: "success", created_at: "1" }]), ...Array.from({ length: 3 }, () => () => json([{ run_id: "r2", status: "success", created_at: "2" }]))],
    });
    const conversation = new Conversation("t");
    await through(conversation.open());
    await through(conversation.catchUp());
    expect(conversation.read().status).toBe("failed");

    await through(conversation.retry(CONTEXT));

    expect(asked.filter((each) => each.startsWith("POST"))).toEqual([]);
    expect(conversation.read()).toMatchObject({ status: "idle", failure: null });
    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "new"]);
  });

  test("follows the run that is under way when it is opened", async () => {
    serve({
      "GET /threads/t/state": () => json({ values: { messages: [MESSAGE] } }),
      "GET /threads/t/runs": () => json([{ run_id: "r0", status: "success", created_at: "1" }, { run_id: "r1", status: "running", created_at: "2" }]),
      "GET /threads/t/runs/r1/stream": ({ headers }) => {
        expect(headers.get("Last-Event-ID")).toBe("-1");
        return stream(start, frame("values", values("done"), 1), frame("end", null, 2));
      },
    });
    const conversation = new Conversation("t");

    await through(conversation.open());

    expect(conversation.read().messages.map(textOf)).toEqual(["Hello?", "done"]);
  });

  test("shows what the sub-agents of earlier runs did after the page was loaded again", async () => {
    const calls = [{ name: "task", id: "c1", args: { description: "Study", prompt: "p" }, type: "tool_call" }];
    const messages = [MESSAGE, { type: "ai", id: "a", content: "", tool_calls: calls }, { type: "tool", id: "r", content: "Task Succeeded. Result: fine", tool_call_id: "c1", name: "task" }];
    const step = { index: 1, message: { type: "ai", id: "s", content: "Looking.", tool_calls: [] } };
    const row = { task_id: "c1", description: "Study", status: "completed", model_name: "m", result: "fine", error: null, usage: { total_tokens: 7 }, steps: [step] };
    const run = (id: string, at: string) => ({ run_id: id, status: "success", created_at: at });
    const asked = serve({
      "GET /threads/t/state": () => json({ values: { messages } }),
      "GET /threads/t/runs": () => json([run("old", "2026-01-01"), run("new", "2026-01-02")]),
      "GET /threads/t/runs/new/tasks": () => json([row]),
    });
    const conversation = new Conversation("t");

    await through(conversation.open());
    await vi.waitFor(() => expect(conversation.read().tasks.c1?.status).toBe("completed"));

    const task = conversation.read().tasks.c1;
    expect(task?.steps.map((each) => each.text)).toEqual(["Looking."]);
    expect([task?.result, task?.model, task?.tokens]).toEqual(["fine", "m", 7]);
    expect(asked).not.toContain("GET /threads/t/runs/old/tasks");
  });

  test("asks for no sub-agents where a thread has none, and does without those it cannot get", async () => {
    const calls = [{ name: "task", id: "c1", args: { prompt: "p" }, type: "tool_call" }];
    const asked = serve({
      "GET /threads/t/state": [() => json({ values: values("plain") }), () => json({ values: { messages: [{ type: "ai", id: "a", content: "", tool_calls: calls }] } })],
      "GET /threads/t/runs": () => json([{ run_id: "r1", status: "success", created_at: "2026-01-01" }]),
      "GET /threads/t/runs/r1/tasks": () => json({ detail: "gone" }, 404),
    });

    await through(new Conversation("t").open());
    expect(asked.filter((each) => each.endsWith("/tasks"))).toEqual([]);
    const conversation = new Conversation("t");
    await through(conversation.open());
    await vi.waitFor(() => expect(asked).toContain("GET /threads/t/runs/r1/tasks"));

    expect(conversation.read().failure).toBeNull();
    expect(conversation.read().tasks).toEqual({});
  });

  test("shows what a summary has replaced, page by page, each message where it was", async () => {
    const message = (id: string) => ({ type: "ai", id, content: id });
    const rows = (...ids: string[]) => ids.map((id, at) => ({ seq: at, content: message(id) }));
    const asked: string[] = [];
    const pages = [
      { data: rows("s3", "s4", "c"), has_more: true, next_before_seq: 30 },
      { data: rows("s1", "s2"), has_more: true, next_before_seq: 20 },
      { data: rows("x", "q"), has_more: false, next_before_seq: null },
    ];
    serve({
      "GET /threads/t/state": () => json({ values: { messages: [message("q"), message("c")], summary_text: "sum" } }),
      "GET /threads/t/runs": () => json([]),
      "GET /threads/t/messages/page": ({ path }) => (asked.push(path.replace(/.*limit=\d+/, "")), json(pages[asked.length - 1])),
    });
    const conversation = new Conversation("t");
    const shown = () => conversation.read().messages.map((each) => each.id).join(" ");

    await through(conversation.open());
    expect([shown(), conversation.read().hasEarlier]).toEqual(["q s3 s4 c", true]);
    await through(conversation.loadEarlier());
    expect(shown()).toBe("q s1 s2 s3 s4 c");
    await through(conversation.loadEarlier());
    await through(conversation.loadEarlier());

    expect([shown(), conversation.read().hasEarlier]).toEqual(["x q s1 s2 s3 s4 c", false]);
    expect([...conversation.read().summedUp].sort().join(" ")).toBe("s1 s2 s3 s4 x");
    expect(asked).toEqual(["", "&before_seq=30", "&before_seq=20"]);
  });
});

import { describe, expect, test } from "vitest";
import type { Message, StreamEvent } from "../api/types.ts";
import { itemsOf } from "./items.ts";
import { reasoningOf, textOf } from "./messages.ts";
import { recorded } from "./recorded.ts";
import { isFailureNote } from "./messages.ts";
import { reduce, withValues } from "./reduce.ts";
import { EMPTY_VIEW, type View } from "./view.ts";

const viewOf = (events: readonly StreamEvent[], from: View = EMPTY_VIEW): View => events.reduce(reduce, from);
const kindsOf = (view: View): string[] => itemsOf(view).map((item) => item.kind);
const chunk = (id: string, content: unknown, more: object = {}): StreamEvent => ({
  kind: "messages",
  data: [{ type: "AIMessageChunk", id, content, ...more }, { langgraph_node: "model" }],
});

describe("a recorded answer", () => {
  const events = recorded("answer");

  test("ends as the state says, with title, reasoning and place to resume from", () => {
    const view = viewOf(events);

    expect(view.status).toBe("idle");
    expect(view.title).toBe("Please do: answer");
    expect(view.messages.map(textOf)).toEqual(["Please do: answer", "It is **42**, as everyone knows."]);
    expect(reasoningOf(view.messages[1] as Message)).toBe("Let me think.");
    expect(view.lastEventId).toBe(events.at(-1)?.id);
    expect(view.partial.size).toBe(0);
  });

  test("reads the same before and after its final state arrives", () => {
    const lastChunk = events.findLastIndex((event) => event.kind === "messages");

    const streamed = viewOf(events.slice(0, lastChunk + 1));

    expect(streamed.status).toBe("running");
    expect(streamed.messages.map(textOf)).toEqual(viewOf(events).messages.map(textOf));
    expect(itemsOf(streamed).at(-1)).toMatchObject({ kind: "answer", isPartial: true });
  });

  test("is the same when replayed on top of the finished thread", () => {
    const finished = viewOf(events);

    const again = viewOf(events, finished);

    expect(again.messages).toEqual(finished.messages);
  });

  test("is the same when the line is cut anywhere and resumed behind the last event", () => {
    for (let cut = 1; cut < events.length; cut += 1) {
      const before = viewOf(events.slice(0, cut));
      const rest = events.slice(events.findIndex((event) => event.id === before.lastEventId) + 1);

      expect(viewOf(rest, before)).toEqual(viewOf(events));
    }
  });
});

describe("recorded tools", () => {
  const events = recorded("tools");

  test("become steps with arguments, results and the files handed over", () => {
    const view = viewOf(events);
    const steps = itemsOf(view).flatMap((item) => (item.kind === "steps" ? item.steps : []));

    expect(kindsOf(view)).toEqual(["said", "answer", "steps", "files", "answer"]);
    expect(steps.map((step) => [step.call.name, step.status])).toEqual([["ls", "done"], ["bash", "done"], ["write_file", "done"]]);
    expect(steps[1]?.call.args.command).toBe("echo one; echo two");
    expect(view.artifacts).toEqual(["/mnt/user-data/outputs/report.md"]);
  });

  test("show what a command prints before it is done", () => {
    const printed = events.findIndex((event) => event.kind === "custom");

    const view = viewOf(events.slice(0, printed + 1));
    const running = itemsOf(view).flatMap((item) => (item.kind === "steps" ? item.steps : [])).at(-1);

    expect(running?.status).toBe("running");
    expect(running?.output).toContain("one");
  });

  test("that were cut off by a stop are shown as stopped", () => {
    const printed = events.findIndex((event) => event.kind === "custom");
    const view = { ...viewOf(events.slice(0, printed + 1)), status: "stopping" as const };

    const stopped = reduce(view, { kind: "end", data: null });

    expect(stopped.status).toBe("stopped");
    expect(itemsOf(stopped).flatMap((item) => (item.kind === "steps" ? item.steps : [])).at(-1)?.status).toBe("stopped");
  });
});

test("a failed run's last message says why it failed", () => {
  const note = { type: "ai", id: "failure-1", content: "**This answer failed.**", additional_kwargs: { deerflow_error_fallback: true } };

  const view = withValues(EMPTY_VIEW, { messages: [{ type: "human", id: "h", content: "hi" }, note] });

  expect(view.messages.map(isFailureNote)).toEqual([false, true]);
});

test("a try that broke off is gone once it is withdrawn", () => {
  const piece = (id: string, content: string) => ({ kind: "messages", data: [{ type: "AIMessageChunk", id, content }, {}] });
  const events = [piece("a", "One"), { kind: "messages", data: [{ type: "remove", id: "a", content: "" }, {}] }, piece("b", "One two")];

  const view = events.reduce(reduce, EMPTY_VIEW);

  expect(view.messages.map((message) => [message.id, message.content])).toEqual([["b", "One two"]]);
});

describe("recorded sub-agents", () => {
  const events = recorded("tasks");
  const tasksIn = (view: View) => itemsOf(view).flatMap((item) => (item.kind === "tasks" ? item.tasks : []));

  test("have a card each, with steps and result", () => {
    const tasks = tasksIn(viewOf(events));

    expect(tasks.map((task) => [task.description, task.status, task.result])).toEqual([
      ["Study Alpha", "completed", "Alpha is fine."],
      ["Study Beta", "completed", "Beta is fine."],
    ]);
    expect(tasks[0]?.steps.map((step) => step.kind)).toEqual(["tool", "result", "text"]);
    expect(tasks[0]?.steps[0]?.text).toBe("ls: Look");
  });

  test("are known from the thread's state alone, without their events", () => {
    const state = viewOf(events);

    const tasks = tasksIn(withValues(EMPTY_VIEW, { messages: state.messages }));

    expect(tasks.map((task) => [task.description, task.status])).toEqual([["Study Alpha", "completed"], ["Study Beta", "completed"]]);
    expect(tasks[0]?.result).toContain("Alpha is fine.");
  });

  test("count no step twice when the stream is replayed", () => {
    const once = viewOf(events);

    const twice = viewOf(events, once);

    expect(twice.tasks).toEqual(once.tasks);
  });

  test.each([
    ["task_failed", "failed"], ["task_cancelled", "cancelled"], ["task_timed_out", "timed_out"],
  ])("that end with %s are %s", (type, status) => {
    const started = reduce(EMPTY_VIEW, { kind: "custom", data: { type: "task_started", task_id: "t", description: "d" } });

    const ended = reduce(started, { kind: "custom", data: { type, task_id: "t", error: "too bad" } });

    expect(ended.tasks.t).toMatchObject({ status, result: "too bad", description: "d" });
  });
});

describe("a recorded question", () => {
  const view = viewOf(recorded("question"));

  test("is open until it is answered", () => {
    expect(kindsOf(view)).toEqual(["said", "question"]);
    expect(itemsOf(view).at(-1)).toMatchObject({ isOpen: true, answer: null });
  });

  test("shows its answer, and the message that carried it stays hidden", () => {
    const question = itemsOf(view).at(-1);
    const request = question?.kind === "question" ? question.request : null;
    const response = { version: 1, kind: "human_input_response", source: "ask_clarification", request_id: request?.request_id ?? "", response_kind: "text", value: "List" } as const;
    const answer: Message = { type: "human", id: "a", content: "List", additional_kwargs: { hide_from_ui: true, human_input_response: response } };

    const answered = { ...view, messages: [...view.messages, answer] };

    expect(kindsOf(answered)).toEqual(["said", "question"]);
    expect(itemsOf(answered).at(-1)).toMatchObject({ isOpen: false, answer: { value: "List" } });
  });
});

test("a recorded failure keeps what it says", () => {
  const view = viewOf(recorded("failure"));

  expect(view.status).toBe("failed");
  expect(view.failure?.message).toContain("the key is not valid");
});

describe("chunks", () => {
  test("of content blocks grow by block", () => {
    const view = viewOf([
      chunk("m", [{ type: "thinking", thinking: "hm", index: 0 }]),
      chunk("m", [{ type: "thinking", thinking: "m", index: 0 }]),
      chunk("m", [{ type: "text", text: "An", index: 1 }]),
      chunk("m", [{ type: "text", text: "swer", index: 1 }]),
    ]);

    expect(textOf(view.messages[0] as Message)).toBe("Answer");
    expect(reasoningOf(view.messages[0] as Message)).toBe("hmm");
  });

  test("of tool calls grow side by side", () => {
    const piece = (index: number, args: string, id: string | null = null, name: string | null = null) =>
      chunk("m", "", { tool_call_chunks: [{ index, args, id, name }] });

    const view = viewOf([
      piece(0, "", "a", "ls"), piece(1, "", "b", "read_file"), piece(0, '{"path":"/x'), piece(1, '{"path":"/y"}'), piece(0, '/z"}'),
    ]);

    expect(view.messages[0]?.tool_calls).toEqual([
      { id: "a", name: "ls", args: { path: "/x/z" } },
      { id: "b", name: "read_file", args: { path: "/y" } },
    ]);
  });

  test("of a middleware's own model calls are not shown", () => {
    const event = { kind: "messages", data: [{ type: "AIMessageChunk", id: "t", content: "A title" }, { langgraph_node: "TitleMiddleware.after_model" }] };

    expect(reduce(EMPTY_VIEW, event).messages).toEqual([]);
  });
});

test("unknown, empty and malformed events change nothing", () => {
  const view = viewOf(recorded("answer"));
  const odd: unknown[] = [null, undefined, 7, "text", [], {}, [null, null], { type: 3 }, { type: "task_started" }, { type: "tool_output", text: 4 }];

  for (const kind of ["messages", "updates", "custom", "values|sub", "debug", "nonsense"]) {
    for (const data of odd) expect(reduce(view, { kind, data }).messages).toBe(view.messages);
  }
});

test("messages that did not change stay the same objects, so that they are not drawn again", () => {
  const events = recorded("tools");
  const middle = events.findIndex((event) => event.kind === "custom");
  const before = viewOf(events.slice(0, middle));

  const after = viewOf(events.slice(middle), before);

  expect(after.messages[0]).toBe(before.messages[0]);
  expect(after.messages[1]).toBe(before.messages[1]);
});

test("a thousand messages and ten thousand chunks are reduced in no time", () => {
  const messages = Array.from({ length: 1000 }, (_, at): Message => ({ type: at % 2 ? "ai" : "human", id: `m${at}`, content: "word ".repeat(100) }));
  const view = withValues(EMPTY_VIEW, { messages });
  const chunks = Array.from({ length: 10_000 }, () => chunk("new", "word "));

  const start = process.cpuUsage(); // a busy machine takes time from us, but counts only ours here
  const after = viewOf(chunks, view);

  expect(textOf(after.messages.at(-1) as Message)).toHaveLength(50_000);
  expect(process.cpuUsage(start).user).toBeLessThan(5_000_000);
});

describe("a conversation that is summed up", () => {
  const message = (id: string, type = "ai"): Message => ({ type, id, content: id });
  const idsOf = (view: View) => view.messages.map((each) => each.id);
  const whole = withValues(EMPTY_VIEW, { messages: [message("q", "human"), message("a"), message("b"), message("c")] });

  test("stays whole, in its order, with a mark behind the last message that the model does not see", () => {
    const view = withValues(whole, { messages: [message("q", "human"), message("c"), message("d")], summary_text: "sum" });

    expect(idsOf(view)).toEqual(["q", "a", "b", "c", "d"]);
    expect([...view.summedUp]).toEqual(["a", "b"]);
    expect(itemsOf(view).map((item) => item.key)).toEqual(["q", "a", "b", "summary", "c", "d"]);
    const again = withValues(view, { messages: [message("d"), message("e")], summary_text: "more" });
    expect(idsOf(again)).toEqual(["q", "a", "b", "c", "d", "e"]);
    expect(itemsOf(again).map((item) => item.key)).toEqual(["q", "a", "b", "c", "summary", "d", "e"]);
  });

  test("loses what goes without a new summary, and keeps the objects of what did not change", () => {
    const view = withValues(whole, { messages: [message("c"), message("d")], summary_text: "sum" });

    const after = withValues(view, { messages: [message("c")], summary_text: "sum" });

    expect(idsOf(after)).toEqual(["q", "a", "b", "c"]);
    expect(after.messages[0]).toBe(whole.messages[0]);
    expect(withValues(after, { messages: [message("c")], summary_text: "sum" }).messages).toBe(after.messages);
  });
});

test("an answer that broke off says so", () => {
  const ended = (id: string, marks: object): Message => ({ type: "ai", id, content: "Half", additional_kwargs: marks });
  const messages = [ended("a", { ended: "stopped" }), ended("b", { ended: "failed" }), ended("c", { ended: "failed", deerflow_error_fallback: true }), ended("d", {})];
  const asked: Message = { type: "human", id: "h", content: "And?" };

  const marksOf = (all: readonly Message[]) => itemsOf(withValues(EMPTY_VIEW, { messages: all })).map((item) => (item.kind === "answer" ? item.ended : item.kind));
  expect(marksOf([...messages, asked])).toEqual(["stopped", "failed", null, null, "said"]);
});

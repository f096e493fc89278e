import { describe, expect, it } from "vitest";
import type { Decision, Interrupt, Message } from "../api/types.ts";
import { answersOf, argumentsIn, edited, onlyText, questionsOf } from "./approvals.ts";
import { itemsOf } from "./items.ts";
import { reduce } from "./reduce.ts";
import { EMPTY_VIEW } from "./view.ts";

const bash = { name: "bash", args: { command: "ls", description: "Look" } };
const pay = { name: "pay", args: { amount: 5, to: "x" } };
const one: Interrupt = { id: "a", value: { action_requests: [bash], hash: "h1" } };
const several: Interrupt = { id: "b", value: [{ action_requests: [pay], hash: "h2" }, { action_requests: [bash] }] };
const other: Interrupt = { id: "c", value: "something else" };
const yes: Decision = { type: "approve" };
const no: Decision = { type: "reject", message: "no" };

describe("approvals", () => {
  it("finds every call that waits and leaves other questions alone", () => {
    expect(questionsOf([one, several, other]).map((question) => question.action.name)).toEqual(["bash", "pay", "bash"]);
    expect(questionsOf([{ id: "d", value: { action_requests: [null] } }])).toEqual([]);
  });

  it("answers by id and with the hash, once all is decided", () => {
    const decisions = new Map<string, Decision>([["a/0/0", yes], ["b/0/0", no]]);

    expect(answersOf([one, several, other], decisions)).toBeNull();
    expect(answersOf([one, several, other], new Map([...decisions, ["b/1/0", yes]]))).toEqual({
      a: { decisions: [yes], hash: "h1" },
      b: [{ decisions: [no], hash: "h2" }, { decisions: [yes] }],
    });
  });

  it("edits the only text as it is and the rest as JSON", () => {
    expect([onlyText(bash), onlyText(pay)]).toEqual(["command", null]);
    expect(edited(bash, "pwd")).toEqual({ name: "bash", args: { command: "pwd", description: "Look" } });
    expect(edited(pay, '{"amount":1}')).toEqual({ name: "pay", args: { amount: 1 } });
    expect([edited(pay, "[1]"), edited(pay, "{")]).toEqual([null, null]);
  });

  it("shows arguments that come as JSON by their names, and text that is no JSON as it is", () => {
    expect(argumentsIn('{"command":"echo \\u202e x","n":1}')).toBe("command: echo \\u202e x\nn: 1");
    expect(argumentsIn('{"command":"cut…')).toBe('{"command":"cut…');
  });

  it("keeps what waits until the next run begins", () => {
    const asked = [one, several].reduce((view, each) => reduce(view, { kind: "updates", data: { __interrupt__: [each] } }), EMPTY_VIEW);
    const again = reduce(asked, { kind: "values", data: { messages: [], __interrupt__: [several] } });

    expect(again.waiting.map((each) => each.id)).toEqual(["a", "b"]);
    expect(reduce(again, { kind: "metadata", data: { run_id: "r2" } }).waiting).toEqual([]);
  });

  it("asks in the order of the calls, in whichever order the questions came", () => {
    const asked = [several, one].reduce((view, each) => reduce(view, { kind: "updates", data: { __interrupt__: [each] } }), EMPTY_VIEW);
    const all = reduce(asked, { kind: "values", data: { messages: [], __interrupt__: [one, several] } });

    expect(all.waiting.map((each) => each.id)).toEqual(["a", "b"]);
  });

  it("shows a call as waiting while its question is open, and those of earlier turns as stopped", () => {
    const asks = (id: string): Message => ({ type: "ai", id, content: "", tool_calls: [{ id: `call-${id}`, name: "bash", args: {} }] });
    const sends: Message = { type: "ai", id: "c", content: "", tool_calls: [{ id: "call-c", name: "task", args: {} }] };
    const messages: Message[] = [asks("a"), { type: "human", id: "h", content: "on" }, asks("b"), sends];
    const asked = reduce(EMPTY_VIEW, { kind: "values", data: { messages, __interrupt__: [one] } });

    const items = itemsOf(reduce(asked, { kind: "end", data: null }));

    const statuses = items.flatMap((item): string[] => {
      if (item.kind === "steps") return item.steps.map((step) => step.status);
      return item.kind === "tasks" ? item.tasks.map((task) => task.status) : [];
    });
    expect(statuses).toEqual(["stopped", "waiting", "waiting"]);
  });
});

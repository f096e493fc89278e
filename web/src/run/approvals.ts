/** Interrupts → questions about single calls, and decisions → the answers that the server takes. Pure. */

import type { ActionRequest, ApprovalRequest, Decision, Interrupt } from "../api/types.ts";
import { visible } from "./visibleText.ts";

/** Answers by the ids of the interrupts. */
export type Answers = Readonly<Record<string, unknown>>;

/** One call that somebody has to decide about. */
export interface Question {
  readonly key: string;
  readonly action: ActionRequest;
  readonly request: ApprovalRequest;
}

/** Return every call that waits; questions that are not about calls are for other clients. */
export function questionsOf(waiting: readonly Interrupt[]): readonly Question[] {
  return waiting.flatMap((asked) =>
    requestsOf(asked).flatMap((request, at) =>
      request.action_requests.map((action, number) => ({ key: keyOf(asked, at, number), action, request })),
    ),
  );
}

/** Return the answers once every call is decided about; null before. */
export function answersOf(waiting: readonly Interrupt[], decisions: ReadonlyMap<string, Decision>): Answers | null {
  if (questionsOf(waiting).some((question) => !decisions.has(question.key))) return null;
  return Object.fromEntries(
    waiting
      .filter((asked) => requestsOf(asked).length > 0)
      .map((asked) => {
        const answers = requestsOf(asked).map((request, at) => ({
          decisions: request.action_requests.map((_, number) => decisions.get(keyOf(asked, at, number))),
          ...(request.hash === undefined ? {} : { hash: request.hash }),
        }));
        // A sub-agent that asks about several calls at once gets its answers in the same order.
        return [asked.id, Array.isArray(asked.value) ? answers : answers[0]];
      }),
  );
}

/** Return the argument that can be changed as plain text, where it is the only one but the label. */
export function onlyText(action: ActionRequest): string | null {
  const [key, ...others] = Object.keys(action.args).filter((name) => name !== "description");
  return key !== undefined && others.length === 0 && typeof action.args[key] === "string" ? key : null;
}

/** Return all arguments for people to read, each under its name, with every character in sight. */
export function argumentsText(args: Readonly<Record<string, unknown>>): string {
  return Object.entries(args)
    .map(([name, value]) => `${name}: ${visible(typeof value === "string" ? value : JSON.stringify(value, null, 2))}`)
    .join("\n");
}

/** Return the same for arguments as JSON; text that is none, such as one that was cut, as it is. */
export function argumentsIn(json: string): string {
  try {
    const args: unknown = JSON.parse(json);
    return isFields(args) ? argumentsText(args) : visible(json);
  } catch {
    return visible(json);
  }
}

/** Return the call as a person changed it; null when what they wrote cannot be read. */
export function edited(action: ActionRequest, text: string): ActionRequest | null {
  const key = onlyText(action);
  if (key !== null) return { name: action.name, args: { ...action.args, [key]: text } };
  try {
    const args: unknown = JSON.parse(text);
    return isFields(args) ? { name: action.name, args } : null;
  } catch {
    return null;
  }
}

function requestsOf(asked: Interrupt): readonly ApprovalRequest[] {
  const values: readonly unknown[] = Array.isArray(asked.value) ? asked.value : [asked.value];
  return values.every(isRequest) ? values : [];
}

function isRequest(value: unknown): value is ApprovalRequest {
  return isFields(value) && Array.isArray(value.action_requests) && value.action_requests.every((each) => isFields(each) && isFields(each.args));
}

function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function keyOf(asked: Interrupt, at: number, number: number): string {
  return `${asked.id}/${at}/${number}`;
}

/** What the page knows about one thread and its run: the result of `reduce`. */

import type { Interrupt, Message, Todo } from "../api/types.ts";

export type RunStatus = "idle" | "starting" | "running" | "reconnecting" | "stopping" | "stopped" | "failed";

export type TaskStatus = "running" | "waiting" | "completed" | "failed" | "cancelled" | "timed_out";

/** One step of a sub-agent, short enough for a line. */
export interface TaskStep {
  readonly index: number;
  readonly kind: "text" | "tool" | "result";
  readonly text: string;
  /** The step's tool failed. */
  readonly isFailed?: boolean;
}

/** A sub-agent's work. */
export interface Task {
  readonly id: string;
  readonly description: string;
  readonly status: TaskStatus;
  readonly steps: readonly TaskStep[];
  readonly result: string | null;
  readonly model: string | null;
  readonly tokens: number | null;
}

/** Something that went wrong: `name` is for programs, `message` for people. */
export interface Failure {
  readonly name: string;
  readonly message: string;
  /** The thread could not be read: what is shown of it may be old. */
  readonly isOfReading?: boolean;
}

/** The name of the failure to find a thread. */
export const NO_THREAD = "no_thread";

/** The name of the failure to bring a message to the server, found after a reload. */
export const UNSENT = "unsent";

export interface View {
  readonly messages: readonly Message[];
  /** Ids of messages that the model sees only as part of `summary`. */
  readonly summedUp: ReadonlySet<string>;
  readonly summary: string | null;
  /** There are messages before the first of these. */
  readonly hasEarlier: boolean;
  /** Ids of messages that are being put together from chunks. */
  readonly partial: ReadonlySet<string>;
  readonly title: string | null;
  readonly artifacts: readonly string[];
  readonly todos: readonly Todo[];
  readonly tasks: Readonly<Record<string, Task>>;
  /** What running tools have printed so far, by tool call. */
  readonly output: Readonly<Record<string, string>>;
  /** Questions at which the thread has stopped. */
  readonly waiting: readonly Interrupt[];
  readonly status: RunStatus;
  readonly runId: string | null;
  readonly lastEventId: string | null;
  readonly failure: Failure | null;
  /** A passing remark, such as "the model is busy, trying again". */
  readonly notice: string | null;
}

export const EMPTY_VIEW: View = {
  messages: [],
  summedUp: new Set(),
  summary: null,
  hasEarlier: false,
  partial: new Set(),
  title: null,
  artifacts: [],
  todos: [],
  tasks: {},
  output: {},
  waiting: [],
  status: "idle",
  runId: null,
  lastEventId: null,
  failure: null,
  notice: null,
};

/** Tell whether a run of this thread is under way. */
export function isBusy(view: View): boolean {
  return view.status === "starting" || view.status === "running" || view.status === "reconnecting" || view.status === "stopping";
}

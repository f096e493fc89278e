/** The shapes of the wire: what the gateway sends and takes. */

export interface TextBlock {
  readonly type: string;
  readonly text?: string;
  readonly thinking?: string;
  readonly reasoning?: string;
  readonly index?: number | string;
}

export type Content = string | readonly (TextBlock | string)[];

export interface ToolCall {
  readonly id: string | null;
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
}

export interface ToolCallChunk {
  readonly id: string | null;
  readonly name: string | null;
  readonly args: string | null;
  readonly index: number | string | null;
}

export interface FileRef {
  readonly filename: string;
  readonly size: number;
  readonly path: string;
  readonly status?: string;
}

export interface Extras {
  readonly files?: readonly FileRef[];
  readonly hide_from_ui?: boolean;
  readonly reasoning_content?: string;
  readonly human_input_response?: HumanInputResponse;
  /** How an answer ended that did not come to its end. */
  readonly ended?: "stopped" | "failed";
  /** The exit code of a command that failed. */
  readonly exit_code?: number;
  /** A call that waits, as a question for clients that know no interrupts; the page has a card of its own. */
  readonly approval_card?: boolean;
  /** What was decided about a call that needed somebody's word. */
  readonly approval?: { readonly decision?: string };
  /** The server wrote the message: it says why the answer of a run failed. */
  readonly deerflow_error_fallback?: boolean;
  readonly subagent_status?: string;
  readonly subagent_result_brief?: string;
  readonly subagent_error?: string;
  readonly subagent_model_name?: string;
}

/** A message as the thread's state holds it; `type` is `human`, `ai`, `tool`, `system` or a chunk of one. */
export interface Message {
  readonly type: string;
  readonly id: string | null;
  readonly content: Content;
  readonly name?: string | null;
  readonly additional_kwargs?: Extras;
  readonly tool_calls?: readonly ToolCall[];
  readonly tool_call_chunks?: readonly ToolCallChunk[];
  readonly tool_call_id?: string;
  readonly artifact?: { readonly human_input?: HumanInputRequest } | null;
  readonly status?: string;
}

export interface Todo {
  readonly content: string;
  readonly status: "pending" | "in_progress" | "completed";
}

/** A tool call that waits for somebody's word. */
export interface ActionRequest {
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly description?: string;
}

/** What people are asked about tool calls; `hash` stands for exactly these calls. */
export interface ApprovalRequest {
  readonly action_requests: readonly ActionRequest[];
  readonly hash?: string;
  /** Why it is asked: `rule` (with the rule's number), `host`, `obeyed_file`, `outside`, `skill_create`, `skill_change` or `skill_delete`; other servers have their own words. */
  readonly reason_code?: string;
  readonly rule?: number;
  /** Why the last answer did not count. */
  readonly problem?: string;
  /** What the sub-agent that asks was sent to do. */
  readonly subagent?: string;
  /** How long an approval can be made to last. */
  readonly remember?: readonly Scope[];
}

/** Where exactly the same call may run unasked from now on. */
export type Scope = "thread" | "always";

/** A call that somebody allowed for good. */
export interface AllowedCall {
  readonly id: string;
  readonly tool: string;
  readonly args: string;
  readonly scope: Scope;
  readonly thread_id: string;
  readonly thread_title: string;
  readonly created_at: string;
}

export type Decision =
  | { readonly type: "approve"; readonly remember?: Scope }
  | { readonly type: "edit"; readonly edited_action: ActionRequest }
  | { readonly type: "reject"; readonly message: string };

/** A question at which the thread has stopped. */
export interface Interrupt {
  readonly id: string;
  readonly value: unknown;
}

export interface Values {
  readonly __interrupt__?: readonly Interrupt[];
  readonly messages?: readonly Message[];
  readonly title?: string | null;
  readonly artifacts?: readonly string[] | null;
  readonly todos?: readonly Todo[] | null;
  /** What stands for messages that the model does not see any more. */
  readonly summary_text?: string | null;
}

/** Messages of a thread from the newest back, also those that a summary has replaced. */
export interface MessagePage {
  readonly data: readonly { readonly seq: number; readonly content: Message }[];
  readonly has_more: boolean;
  readonly next_before_seq: number | null;
}

export interface Thread {
  readonly thread_id: string;
  readonly status: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly values: Values | null;
  /** It asked something, or a call waits for somebody's word. */
  readonly waits_for_answer?: boolean;
}

export interface Run {
  readonly run_id: string;
  readonly thread_id: string;
  readonly status: "pending" | "running" | "success" | "error" | "timeout" | "interrupted";
  readonly created_at: string;
  readonly error?: string | null;
}

export interface Model {
  readonly name: string;
  readonly display_name?: string | null;
  readonly description?: string | null;
  readonly supports_thinking?: boolean;
}

export interface Skill {
  readonly name: string;
  readonly description: string;
  readonly enabled: boolean;
}

export interface UploadLimits {
  readonly max_files: number;
  readonly max_file_size: number;
  readonly max_total_size: number;
}

export interface UploadedFile {
  readonly filename: string;
  readonly size: number | string;
  readonly virtual_path: string;
}

export interface UploadAnswer {
  readonly success: boolean;
  readonly files: readonly UploadedFile[];
  readonly message?: string;
  readonly skipped_files?: readonly unknown[];
}

export interface HumanInputOption {
  readonly id: string;
  readonly label: string;
  readonly value: string;
}

export interface HumanInputField {
  readonly name: string;
  readonly label?: string;
  readonly type?: string;
  readonly required?: boolean;
  readonly placeholder?: string;
  readonly options?: readonly (HumanInputOption | string)[];
}

export interface HumanInputRequest {
  readonly request_id: string;
  readonly source?: string;
  readonly question: string;
  readonly context?: string | null;
  readonly input_mode: "free_text" | "choice_with_other" | "form";
  readonly options?: readonly HumanInputOption[] | null;
  readonly fields?: readonly HumanInputField[] | null;
}

export interface HumanInputResponse {
  readonly version: 1;
  readonly kind: "human_input_response";
  readonly source: string;
  readonly request_id: string;
  readonly response_kind: "text" | "option";
  readonly option_id?: string;
  readonly value: string;
}

/** What one run may be told about how to work. */
export interface RunContext {
  readonly model_name?: string;
  readonly thinking_enabled: boolean;
  readonly is_plan_mode: boolean;
  readonly subagent_enabled: boolean;
  readonly max_concurrent_subagents: number;
  /** The page's language, in which the server says why an answer failed. */
  readonly locale: string;
}

/** One frame of a run's stream, its data parsed. */
export interface StreamEvent {
  readonly id?: string;
  readonly kind: string;
  readonly data: unknown;
}

/** A sub-agent's work as the log of its run has it. */
export interface TaskRow {
  readonly task_id: string;
  readonly description: string;
  readonly status: string;
  readonly model_name: string | null;
  readonly result: string | null;
  readonly error: string | null;
  readonly usage: { readonly total_tokens?: number } | null;
  readonly steps?: readonly { readonly index: number | null; readonly message: Message }[];
}

/** Messages: their text, and how chunks grow into one. */

import type { Content, Extras, Message, TextBlock, ToolCall, ToolCallChunk } from "../api/types.ts";
import { readPartial } from "./partialJson.ts";

/** A piece of a message that is still being written. */
export interface Growing extends Message {
  /** Per tool call: the text of its arguments so far. */
  readonly argTexts?: readonly string[];
  readonly slots?: readonly (number | string | null)[];
}

/** Return the readable text of a message. */
export function textOf(message: Message): string {
  const { content } = message;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((block: TextBlock | string) => (typeof block === "string" ? block : textOfBlock(block))).join("");
}

/** Return what the model thought before it answered. */
export function reasoningOf(message: Message): string {
  const said = message.additional_kwargs?.reasoning_content;
  if (typeof said === "string" && said) return said;
  if (typeof message.content === "string" || !Array.isArray(message.content)) return "";
  return message.content
    .map((block: TextBlock | string) => (typeof block === "string" ? "" : (block.thinking ?? block.reasoning ?? "")))
    .join("");
}

export function isHuman(message: Message): boolean {
  return message.type === "human" || message.type === "HumanMessageChunk";
}

export function isAi(message: Message): boolean {
  return message.type === "ai" || message.type === "AIMessageChunk";
}

export function isTool(message: Message): boolean {
  return message.type === "tool" || message.type === "ToolMessageChunk";
}

/** Tell whether a message says why the answer of a run failed. */
export function isFailureNote(message: Message | undefined): boolean {
  return message?.additional_kwargs?.deerflow_error_fallback === true;
}

/** Return `message` with the next chunk of it added. */
export function grow(message: Growing | null, chunk: Message): Growing {
  const calls = growCalls(message, chunk.tool_call_chunks ?? []);
  return {
    ...chunk,
    content: message ? joinContent(message.content, chunk.content) : chunk.content,
    additional_kwargs: joinExtras(message?.additional_kwargs, chunk.additional_kwargs),
    name: chunk.name ?? message?.name ?? null,
    ...(calls ?? { tool_calls: message?.tool_calls ?? chunk.tool_calls ?? [] }),
  };
}

/** Return the messages of `next`, keeping the old object wherever nothing changed (so that it is not drawn again). */
export function reconcile(before: readonly Message[], next: readonly Message[]): readonly Message[] {
  const known = new Map(before.map((message) => [message.id, message]));
  const merged = next.map((message, index) => {
    const named = message.id === null || message.id === undefined ? { ...message, id: `unnamed-${index}` } : message;
    const old = known.get(named.id);
    return old && isSame(old, named) ? old : named;
  });
  return isEqual(merged, before) ? before : merged;
}

/** Return `next` among the messages before that a summary has replaced, each where it was. */
export function amongSummedUp(before: readonly Message[], next: readonly Message[], summedUp: ReadonlySet<string>): readonly Message[] {
  const fresh = reconcile(before, next);
  if (summedUp.size === 0) return fresh;
  const left = new Map(fresh.map((message) => [message.id, message]));
  const merged: Message[] = [];
  for (const old of before) {
    const message = left.get(old.id) ?? (summedUp.has(old.id ?? "") ? old : null);
    left.delete(old.id);
    if (message) merged.push(message);
  }
  merged.push(...left.values());
  return isEqual(merged, before) ? before : merged;
}

/**
 * Return `known` with a page of the thread's history in its place.
 *
 * Of what is not on the page, what stands before the first message that was read from the history is older than it.
 */
export function withPage(known: readonly Message[], page: readonly Message[], read: ReadonlySet<string>): readonly Message[] {
  const onPage = new Set(page.map((message) => message.id));
  const latest = new Map(known.map((message) => [message.id, message]));
  const isRead = (message: Message) => onPage.has(message.id) || read.has(message.id ?? "");
  const first = Math.max(known.findIndex(isRead), 0);
  const others = (part: readonly Message[]) => part.filter((message) => !onPage.has(message.id));
  return [...others(known.slice(0, first)), ...page.map((message) => latest.get(message.id) ?? message), ...others(known.slice(first))];
}

function isEqual(a: readonly Message[], b: readonly Message[]): boolean {
  return a.length === b.length && a.every((message, index) => message === b[index]);
}

function isSame(a: Message, b: Message): boolean {
  return a.type === b.type && JSON.stringify(a) === JSON.stringify(b);
}

function textOfBlock(block: TextBlock): string {
  return block.type === "text" || block.type === "output_text" || block.type === undefined ? (block.text ?? "") : "";
}

function joinContent(before: Content, next: Content): Content {
  if (typeof before === "string" && typeof next === "string") return before + next;
  const blocks = [...asBlocks(before)];
  for (const block of asBlocks(next)) {
    const at = blocks.findIndex((old) => old.index !== undefined && old.index === block.index && old.type === block.type);
    const last = blocks.length - 1;
    const place = at >= 0 ? at : block.index === undefined && blocks[last]?.type === block.type ? last : -1;
    const old = blocks[place];
    if (old) blocks[place] = joinBlock(old, block);
    else blocks.push(block);
  }
  return blocks;
}

function joinBlock(before: TextBlock, next: TextBlock): TextBlock {
  return {
    ...before,
    ...(next.text === undefined ? {} : { text: (before.text ?? "") + next.text }),
    ...(next.thinking === undefined ? {} : { thinking: (before.thinking ?? "") + next.thinking }),
    ...(next.reasoning === undefined ? {} : { reasoning: (before.reasoning ?? "") + next.reasoning }),
  };
}

function asBlocks(content: Content): readonly TextBlock[] {
  if (typeof content === "string") return content ? [{ type: "text", text: content }] : [];
  return Array.isArray(content)
    ? content.map((block: TextBlock | string) => (typeof block === "string" ? { type: "text", text: block } : block))
    : [];
}

function joinExtras(before: Extras | undefined, next: Extras | undefined): Extras {
  const reasoning = (before?.reasoning_content ?? "") + (next?.reasoning_content ?? "");
  return { ...before, ...next, ...(reasoning ? { reasoning_content: reasoning } : {}) };
}

function growCalls(message: Growing | null, chunks: readonly ToolCallChunk[]) {
  if (chunks.length === 0) {
    return message?.argTexts ? { tool_calls: message.tool_calls, argTexts: message.argTexts, slots: message.slots } : null;
  }
  const calls: ToolCall[] = [...(message?.tool_calls ?? [])];
  const texts = [...(message?.argTexts ?? [])];
  const slots = [...(message?.slots ?? [])];
  for (const chunk of chunks) {
    const at = placeOf(chunk, calls, slots);
    texts[at] = (texts[at] ?? "") + (chunk.args ?? "");
    slots[at] = chunk.index;
    const old = calls[at];
    calls[at] = {
      id: old?.id ?? chunk.id,
      name: (old?.name ?? "") + (chunk.name ?? ""),
      args: readPartial(texts[at]),
    };
  }
  return { tool_calls: calls, argTexts: texts, slots };
}

function placeOf(chunk: ToolCallChunk, calls: readonly ToolCall[], slots: readonly (number | string | null)[]): number {
  const sameSlot = chunk.index === null ? -1 : slots.lastIndexOf(chunk.index);
  const isAnother = sameSlot >= 0 && chunk.id && calls[sameSlot]?.id && calls[sameSlot].id !== chunk.id;
  if (sameSlot >= 0 && !isAnother) return sameSlot;
  if (chunk.index === null && !chunk.id && calls.length > 0) return calls.length - 1;
  return calls.length;
}

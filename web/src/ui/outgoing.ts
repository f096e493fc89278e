/** What the person says, as the wire wants it. */

import type { FileRef, HumanInputRequest, Message } from "../api/types.ts";
import type { Reply } from "./QuestionCard.tsx";
import { newId } from "./useRoute.ts";

export function humanMessage(text: string, files: readonly FileRef[]): Message {
  return {
    type: "human",
    id: newId(),
    content: [{ type: "text", text }],
    additional_kwargs: files.length > 0 ? { files } : {},
  };
}

/** An answer to a question; the question's card shows it, so the message itself stays hidden. */
export function answerMessage(request: HumanInputRequest, reply: Reply): Message {
  return {
    type: "human",
    id: newId(),
    content: [{ type: "text", text: reply.text }],
    additional_kwargs: {
      hide_from_ui: true,
      human_input_response: {
        version: 1,
        kind: "human_input_response",
        source: request.source ?? "ask_clarification",
        request_id: request.request_id,
        response_kind: reply.optionId === undefined ? "text" : "option",
        ...(reply.optionId === undefined ? {} : { option_id: reply.optionId }),
        value: reply.text,
      },
    },
  };
}

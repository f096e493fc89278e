/** Everything between writing and the run: the draft, its files, and the wait for them. */

import { useCallback, useEffect, useRef, useState } from "react";
import type { HumanInputRequest, Message, RunContext } from "../api/types.ts";
import type { Conversation } from "../run/conversation.ts";
import type { Answers } from "../run/approvals.ts";
import { answerMessage, humanMessage } from "./outgoing.ts";
import type { Reply } from "./QuestionCard.tsx";
import { useAttachments, type Attachments } from "./useAttachments.ts";
import { useDraft } from "./useDraft.ts";

export interface Sending {
  readonly draft: string;
  readonly setDraft: (text: string) => void;
  readonly attachments: Attachments;
  /** A message is waiting for its files to be up. */
  readonly isWaiting: boolean;
  readonly send: () => void;
  readonly reply: (request: HumanInputRequest, given: Reply) => void;
  readonly answer: (answers: Answers) => void;
  readonly retry: () => void;
  readonly regenerate: (messageId: string) => void;
}

/** `onSent` hears of each message that goes out. */
export function useSending(conversation: Conversation, isNew: boolean, context: RunContext, onSent: () => void): Sending {
  const [draft, setDraft] = useDraft(conversation.threadId, isNew);
  const [isWaiting, setIsWaiting] = useState(false);
  const attachments = useAttachments(conversation.threadId, useCallback(() => conversation.ensureThread(), [conversation]));
  const latest = useRef({ context, onSent });
  latest.current = { context, onSent };

  const deliver = useCallback(
    (message: Message) => {
      void conversation.send(message, latest.current.context);
      latest.current.onSent();
    },
    [conversation],
  );

  useEffect(() => {
    if (!isWaiting || attachments.isUploading) return;
    setIsWaiting(false);
    if (attachments.list.some((entry) => entry.error)) return; // the person sees to it first
    deliver(humanMessage(draft.trim(), attachments.list.flatMap((entry) => entry.file ?? [])));
    setDraft("");
    attachments.clear();
  }, [isWaiting, attachments, deliver, draft, setDraft]);

  const send = useCallback(() => setIsWaiting(true), []);
  const reply = useCallback((request: HumanInputRequest, given: Reply) => deliver(answerMessage(request, given)), [deliver]);
  const answer = useCallback((answers: Answers) => void conversation.answer(answers, latest.current.context), [conversation]);
  const retry = useCallback(() => void conversation.retry(latest.current.context), [conversation]);
  const regenerate = useCallback((id: string) => void conversation.regenerate(id, latest.current.context), [conversation]);
  return { draft, setDraft, attachments, isWaiting, send, reply, answer, retry, regenerate };
}

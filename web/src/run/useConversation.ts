/** A thread's conversation for as long as it is on screen. */

import { useEffect, useMemo, useSyncExternalStore } from "react";
import { Conversation } from "./conversation.ts";
import type { View } from "./view.ts";

/** Follow `threadId`; a new thread has nothing to read yet. */
export function useConversation(threadId: string, isNew: boolean): readonly [Conversation, View] {
  const conversation = useMemo(() => new Conversation(threadId), [threadId]);
  useEffect(() => {
    if (!isNew) void conversation.open();
    const onVisible = () => document.visibilityState === "visible" && void conversation.catchUp();
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      document.removeEventListener("visibilitychange", onVisible);
      conversation.close();
    };
    // `isNew` turns false when the first message creates the thread, which is then being followed already.
  }, [conversation]);
  return [conversation, useSyncExternalStore(conversation.subscribe, conversation.read)];
}

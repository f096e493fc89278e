/** What is written but not sent yet; it survives a look at another thread and a reload. */

import { useCallback, useState } from "react";

/** All new chats share one draft: their ids are made up on each visit. */
export function useDraft(threadId: string, isNew: boolean): readonly [string, (text: string) => void] {
  const key = `deerflow:draft:${isNew ? "new" : threadId}`;
  const [draft, setDraft] = useState(() => read(key));
  const write = useCallback(
    (text: string) => {
      setDraft(text);
      try {
        if (text) sessionStorage.setItem(key, text);
        else sessionStorage.removeItem(key);
      } catch {
        // Storage may be full or switched off: the draft then lasts as long as the thread is open.
      }
    },
    [key],
  );
  return [draft, write];
}

function read(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

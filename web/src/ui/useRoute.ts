/** Which thread the address names: `#/threads/{id}`, or a new one. */

import { useCallback, useEffect, useState } from "react";
import { isThreadId } from "../api/threads.ts";

export interface Route {
  readonly threadId: string;
  /** A new thread exists on this page only, until something is sent. */
  readonly isNew: boolean;
}

export interface Routing {
  readonly route: Route;
  readonly openThread: (threadId: string) => void;
  readonly openNew: () => void;
  /** Put the current, until now new, thread into the address. */
  readonly keep: () => void;
}

export function useRoute(): Routing {
  const [route, setRoute] = useState(readRoute);

  useEffect(() => {
    const onChange = () => setRoute((before) => (addressOf(before) === location.hash ? before : readRoute()));
    window.addEventListener("hashchange", onChange);
    onChange(); // the address may have changed since it was read first
    return () => window.removeEventListener("hashchange", onChange);
  }, []);

  const openThread = useCallback((threadId: string) => {
    location.hash = addressOf({ threadId, isNew: false });
  }, []);

  const openNew = useCallback(() => {
    history.pushState(null, "", location.pathname);
    setRoute({ threadId: newId(), isNew: true });
  }, []);

  const keep = useCallback(() => {
    setRoute((before) => {
      const kept = { threadId: before.threadId, isNew: false };
      if (before.isNew) history.replaceState(null, "", addressOf(kept));
      return before.isNew ? kept : before;
    });
  }, []);

  return { route, openThread, openNew, keep };
}

function readRoute(): Route {
  const id = /^#\/threads\/(.+)$/.exec(location.hash)?.[1];
  return id && isThreadId(id) ? { threadId: id, isNew: false } : { threadId: newId(), isNew: true };
}

function addressOf(route: Route): string {
  return route.isNew ? "" : `#/threads/${route.threadId}`;
}

/** `crypto.randomUUID` exists on https and loopback only; the page may be served over plain http in a LAN. */
export function newId(): string {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** How long nothing has happened. */

import { useEffect, useState } from "react";

/** Return the whole seconds since `news` last changed, while `isOn`. */
export function useQuietSeconds(news: unknown, isOn: boolean): number {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    setSeconds(0);
    if (!isOn) return undefined;
    const since = Date.now();
    const timer = setInterval(() => setSeconds(Math.floor((Date.now() - since) / 1000)), 1000);
    return () => clearInterval(timer);
  }, [news, isOn]);
  return seconds;
}

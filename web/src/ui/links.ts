/** Which addresses in an answer may be followed, and what kind they are. */

import { artifactPlace, type ArtifactPlace } from "../api/artifacts.ts";

export type LinkTarget =
  | { readonly kind: "web"; readonly href: string }
  | { readonly kind: "artifact"; readonly place: ArtifactPlace }
  | { readonly kind: "refused" };

const SAFE = /^(https?|mailto):/i;

/** Return what `href` leads to; anything but the web, mail and the thread's own files is refused. */
export function linkTarget(href: string | undefined): LinkTarget {
  // Browsers skip control characters inside a scheme, so they must not hide one from us either.
  const address = (href ?? "").replace(/[\u0000-\u001f\u007f]/g, "").trim();
  const place = artifactPlace(address);
  if (place) return { kind: "artifact", place };
  return SAFE.test(address) ? { kind: "web", href: address } : { kind: "refused" };
}

/** Return the host of a web address, for people. */
export function hostOf(href: string): string {
  try {
    return new URL(href).host || href;
  } catch {
    return href;
  }
}

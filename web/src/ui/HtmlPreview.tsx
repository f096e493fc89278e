import { useWords } from "../text/index.ts";

/** What a page in the preview may load: nothing but what it carries itself. */
const POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:; form-action 'none'";

/** A link that the person clicks opens apart, as an ordinary page; nothing else is allowed. */
const RIGHTS = "allow-popups allow-popups-to-escape-sandbox";

/** An HTML file, drawn in a frame without rights: no scripts, no forms, no network, no access to this page. */
export function HtmlPreview({ html }: { readonly html: string }) {
  const words = useWords();
  return (
    <div className="flex h-full flex-col">
      <p className="border-b border-line px-4 py-1 text-xs text-muted">{words.htmlPreview}</p>
      <iframe title={words.preview} sandbox={RIGHTS} srcDoc={guarded(html)} referrerPolicy="no-referrer" className="min-h-0 w-full flex-1 bg-white" />
    </div>
  );
}

/** Return `html` with the policy in front of everything that could load; behind the doctype, which must come first. */
export function guarded(html: string): string {
  const doctype = /^\s*<!doctype[^>]*>/i.exec(html)?.[0] ?? "";
  return `${doctype}<meta http-equiv="Content-Security-Policy" content="${POLICY}"><base target="_blank">${html.slice(doctype.length)}`;
}

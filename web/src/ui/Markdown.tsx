/** Markdown as the model writes it: no raw HTML, no unsafe link, nothing loaded from elsewhere unasked. */

import { memo, useMemo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { CodeBlock } from "./CodeBlock.tsx";
import { linkPaths } from "./linkPaths.ts";
import { MarkdownImage } from "./MarkdownImage.tsx";
import { MarkdownLink } from "./MarkdownLink.tsx";
import { splitBlocks } from "./splitBlocks.ts";

const PLUGINS = [remarkGfm, linkPaths];

const COMPONENTS: Components = {
  a: ({ href, children }) => <MarkdownLink href={href}>{children}</MarkdownLink>,
  img: ({ src, alt }) => <MarkdownImage src={typeof src === "string" ? src : undefined} alt={alt ?? ""} />,
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => (
    <div className="table-scroll">
      <table>{children}</table>
    </div>
  ),
};

/** Addresses are judged by the link and image components, which know the thread's own files. */
const keepAddress = (address: string): string => address;

const Block = memo(function Block({ text }: { readonly text: string }) {
  return (
    <div className="markdown-block">
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={keepAddress}>
        {text}
      </ReactMarkdown>
    </div>
  );
});

export const Markdown = memo(function Markdown({ text }: { readonly text: string }) {
  const blocks = useMemo(() => splitBlocks(text), [text]);
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
});

/**
 * A wrapper for servers of the Model Context Protocol: bounds what tools answer, and answers ranges of
 * the rest as resources.
 *
 * @packageDocumentation
 */

import { type McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import {
  type CallToolRequest,
  type CallToolResult,
  type ContentBlock,
  ErrorCode,
  type ListToolsResult,
  McpError,
  type ReadResourceResult,
  type ResourceLink,
  type ServerResult,
  type Tool,
} from "@modelcontextprotocol/sdk/types.js";

import { library } from "./load.js";
import type { Artifacts, EvidenceLimits } from "./wasm/evidence_wasm.js";

/** Where large results are kept, and what large is. */
export interface BoundServerOptions {
  /** Keeps what is too large, and answers ranges of it: to every client of this server. */
  artifacts: Artifacts;
  /** How much reaches the model; contract A's own limits when left out. */
  limits?: EvidenceLimits;
}

/** What the addresses of ranges begin with; the path of the range follows. */
export const RANGE_URI_PREFIX = "bounded-evidence:///";

/**
 * Wraps a server, so that no result of a tool over the limit is sent: a larger one is stored, and
 * answered by an observation with a link to its first range. Clients read ranges with
 * `resources/read`, and models that have only tools with `read_file`: that tool is added where the
 * server has none, and where it has one, paths of artifacts never reach it.
 *
 * Bounded is what a model reads: texts, links, embedded texts and structured content, of errors as
 * well. Where they are one text, that text is stored, otherwise their JSON. Images, audio and blobs
 * stay beside the observation. Because an observation has no structured content, the output schemas of
 * tools are not announced; the server itself goes on checking them.
 *
 * When storing fails the call is answered with an error, and nothing of the result is sent.
 *
 * @param server - A server that has neither tools nor a task store yet.
 * @param options - Where large results are kept, and what large is.
 * @returns The same server.
 */
export function boundServer<T extends McpServer>(server: T, options: BoundServerOptions): T {
  refuseHandlersOf(server);
  const protocol = server.server;
  const setRequestHandler = protocol.setRequestHandler.bind(protocol);
  protocol.setRequestHandler = (schema, handler) => {
    setRequestHandler(schema, async (request, extra) => {
      switch (request.method) {
        case "tools/call": {
          const range = await rangeOf(request as CallToolRequest, options);
          return range ?? boundResult((await handler(request, extra)) as ServerResult, options);
        }
        case "tools/list":
          return withReadFile((await handler(request, extra)) as ListToolsResult);
        default:
          return handler(request, extra);
      }
    });
  };
  server.registerResource(
    "tool-result-range",
    new ResourceTemplate(`${RANGE_URI_PREFIX}{+path}`, { list: undefined }),
    { description: "An exact byte range of a tool result that was too large to be sent.", mimeType: "text/plain" },
    (uri) => readRange(uri.href, options),
  );
  return server;
}

/** What was set before could not be bounded. */
function refuseHandlersOf(server: McpServer): void {
  for (const method of ["tools/call", "tools/list", "tasks/result"]) {
    try {
      server.server.assertCanSetRequestHandler(method);
    } catch {
      throw new (library().EvidenceError)(
        "invalid_argument",
        `the server answers ${method} already; wrap it before it has tools, and without a task store`,
      );
    }
  }
}

/** The answer to a call of `read_file` for a path of the artifacts. */
async function rangeOf({ params }: CallToolRequest, options: BoundServerOptions): Promise<CallToolResult | undefined> {
  const path = params.arguments?.["path"];
  if (params.name !== READ_FILE.name || typeof path !== "string") return undefined;
  if (!library().isArtifactPath(path)) return undefined;
  const { ok, text } = await options.artifacts.readRange(path, options.limits);
  return { content: [{ type: "text", text }], isError: !ok };
}

async function readRange(uri: string, { artifacts, limits }: BoundServerOptions): Promise<ReadResourceResult> {
  const { ok, text } = await artifacts.readRange(uri.slice(RANGE_URI_PREFIX.length), limits);
  if (!ok) throw new McpError(ErrorCode.InvalidParams, text);
  return { contents: [{ uri, mimeType: "text/plain", text }] };
}

async function boundResult(result: ServerResult, { artifacts, limits }: BoundServerOptions): Promise<ServerResult> {
  // A task's result is read elsewhere, where there is a task store.
  if (!("content" in result) || !Array.isArray(result.content)) return result;
  const { content, structuredContent, ...rest } = result as CallToolResult;
  const texts = content.filter(isText);
  if (texts.length === 0 && structuredContent === undefined) return result;
  const [first] = texts;
  const text =
    texts.length === 1 && first?.type === "text" && structuredContent === undefined
      ? first.text
      : JSON.stringify({ content: texts, structuredContent });
  const bounded = await artifacts.bound(text, limits);
  if (!bounded.externalized) return result;
  const others = content.filter((block) => !isText(block));
  return { ...rest, content: [{ type: "text", text: bounded.text }, linkOf(bounded.text), ...others] };
}

/** Whether a block is read as text, and not seen or heard. */
function isText(block: ContentBlock): boolean {
  switch (block.type) {
    case "image":
    case "audio":
      return false;
    case "resource":
      return "text" in block.resource;
    default:
      return true;
  }
}

/** A link to the range that an observation names. */
function linkOf(observation: string): ResourceLink {
  const { artifact_id, range_request } = JSON.parse(observation.slice(observation.indexOf("{")));
  return {
    type: "resource_link",
    uri: RANGE_URI_PREFIX + range_request.path,
    name: artifact_id,
    description: "The first bytes of the complete result. The positions at the end of the address say which.",
    mimeType: "text/plain",
  };
}

const READ_FILE = {
  name: "read_file",
  description:
    "Reads an exact byte range of a tool result that was too large to be shown. The result's range_request has a " +
    "path; the positions at its end may be changed.",
  inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
  annotations: { readOnlyHint: true },
} satisfies Tool;

function withReadFile({ tools, ...rest }: ListToolsResult): ListToolsResult {
  const announced = tools.map(({ outputSchema: _, ...tool }): Tool => tool);
  const isComplete = rest.nextCursor === undefined && !tools.some(({ name }) => name === READ_FILE.name);
  return { ...rest, tools: isComplete ? [...announced, READ_FILE] : announced };
}

// A server of the Model Context Protocol whose tools may answer any amount of text.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { openStore } from "bounded-evidence";
import { boundServer } from "bounded-evidence/mcp";
import { z } from "zod";

const store = await openStore({ kind: "memory" });
const log = `${"compiling\n".repeat(5_000)}error[E0282]: type annotations needed\n${"compiling\n".repeat(5_000)}`;

// Wrapped before it has tools. A model reads more at a time here than contract A's 512 bytes.
const server = boundServer(new McpServer({ name: "builds", version: "1.0.0" }), {
  artifacts: store.artifacts("builds"),
  limits: { maxInlineBytes: 4096, previewBytes: 1024, maxRangeBytes: 4096 },
});

server.registerTool(
  "build",
  { description: "Builds the project and answers the log.", inputSchema: { target: z.string() } },
  async () => ({ content: [{ type: "text", text: log }] }),
);

await server.connect(new StdioServerTransport());

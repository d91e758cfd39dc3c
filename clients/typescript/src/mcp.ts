import { McpError } from "./errors.js";
import type { Requested } from "./events.js";
import type { JsonObject, Message } from "./wire.js";
import { integer, object, string } from "./wire.js";

const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
const INTERNAL_ERROR = -32603;
const SERVER_ERROR = -32000;

/** How many calls may be under way, and how many more than that are refused in words. */
const MAX_CALLS = 1000;
const MAX_REFUSED = 1000;

/** What is told of a tool to those who list tools. */
export interface ToolOptions {
  readonly description?: string;
  /** JSON Schema of the arguments. It is told to callers; the handler checks what it gets. */
  readonly inputSchema?: JsonObject;
}

/**
 * Carries out a call of a tool. What it returns, or resolves to, becomes the result; an exception becomes an error.
 * `sender` is the participant who calls.
 */
export type ToolHandler = (args: JsonObject, sender: string) => unknown;

/** The tools that we serve to the space. */
export class Tools {
  readonly #tools = new Map<string, { options: ToolOptions; handler: ToolHandler }>();
  readonly #respond: (request: Requested, answer: unknown) => Promise<void>;
  #underWay = 0;

  constructor(respond: (request: Requested, answer: unknown) => Promise<void>) {
    this.#respond = respond;
  }

  add(name: string, options: ToolOptions, handler: ToolHandler): void {
    this.#tools.set(name, { options, handler });
  }

  /** Answers a request if it is for one of our tools. */
  received(request: Requested): void {
    const isOurs = request.method === "tools/list" || request.method === "tools/call";
    if (!isOurs || this.#tools.size === 0 || this.#underWay >= MAX_CALLS + MAX_REFUSED) return;
    void this.#answer(request, this.#underWay++ < MAX_CALLS).finally(() => this.#underWay--);
  }

  async #answer(request: Requested, hasRoom: boolean): Promise<void> {
    let answer: unknown;
    try {
      if (!hasRoom) throw new McpError("too many calls are waiting: try again later", SERVER_ERROR);
      answer = await this.#carryOut(request);
      JSON.stringify(answer);
    } catch (error) {
      answer = error instanceof McpError ? error : new McpError(textOf(error), INTERNAL_ERROR);
    }
    // Where it cannot be sent, there is nobody to tell.
    await this.#respond(request, answer).catch(() => undefined);
  }

  async #carryOut(request: Requested): Promise<unknown> {
    if (request.method === "tools/list") {
      const tools = [...this.#tools].map(([name, { options }]) => ({
        name,
        description: options.description,
        inputSchema: options.inputSchema ?? { type: "object" },
      }));
      return { tools };
    }
    const params = object(request.params);
    const name = string(params["name"]) ?? "";
    const tool = this.#tools.get(name);
    if (!tool) {
      const known = [...this.#tools.keys()].join(", ");
      throw new McpError(`there is no tool ${JSON.stringify(name)}: there are ${known}`, METHOD_NOT_FOUND);
    }
    const args = params["arguments"] ?? {};
    if (args !== object(args)) throw new McpError("the arguments must be an object", INVALID_PARAMS);
    return content(await tool.handler(object(args), request.sender));
  }
}

/** A handler's result in the form of an MCP tool result, unless it has that form already. */
function content(found: unknown): unknown {
  if ("content" in object(found)) return found;
  if (typeof found === "string") return { content: [{ type: "text", text: found }] };
  const structured = { structuredContent: found === object(found) ? found : { result: found } };
  return {
    content: [{ type: "text", text: JSON.stringify(found ?? null) }],
    ...(found !== undefined && found !== null && structured),
  };
}

/** What a handler threw, as text. It may be anything, even what the caller sent, and then `String` may throw too. */
function textOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return "the tool failed";
  }
}

/** The payload of the answer to a request: a result, or an error. */
export function answerOf(answer: unknown): JsonObject {
  if (!(answer instanceof McpError)) return { result: answer ?? null };
  return { error: { code: answer.code, message: answer.message, data: answer.data } };
}

/** The result in an `mcp/response`. Throws {@link McpError} where it holds an error instead. */
export function resultOf({ payload }: Message): unknown {
  const { error } = payload;
  if (error === undefined || error === null) return "result" in payload ? payload["result"] : payload;
  const described = typeof error === "string" ? { message: error } : object(error);
  const message = string(described["message"]) || "the request failed";
  throw new McpError(message, integer(described["code"]) ?? SERVER_ERROR, described["data"]);
}

/** What an answer says of the tools that it took: which were called, what is still to come, and who has to decide. */
import { questionsOf } from "../calls/input-request.ts";
import type { ToolOutcome } from "../tools/outcome.ts";
import type { ChatEvent, ToolExecution } from "./events.ts";

type PendingCall = NonNullable<ToolExecution["pending"]>[number];

export class ToolReport {
  readonly #publicUrl: string;
  readonly #called: string[] = [];
  readonly #pending: PendingCall[] = [];
  /** Of those that wait for input, by call. */
  readonly #questions = new Map<string, string>();

  /** @param publicUrl under which pages of calls are found */
  constructor(publicUrl: string) {
    this.#publicUrl = publicUrl;
  }

  /** @returns the event that tells of it */
  add(tool: string, toolCallId: string, outcome: ToolOutcome): ChatEvent {
    if (outcome.kind !== "rejected" && !this.#called.includes(tool)) this.#called.push(tool);
    if (outcome.kind !== "pending") return { type: "tool-result", toolCallId, tool, outcome };
    const { callId, reason, requests } = outcome;
    const url = `${this.#publicUrl}/v1/calls/${callId}`;
    this.#pending.push({ call_id: callId, tool, reason, url });
    if (reason === "async") return { type: "tool-pending", toolCallId, tool, callId };
    if (requests !== undefined) this.#questions.set(callId, questionsOf(requests));
    return {
      type: "approval-required",
      toolCallId,
      tool,
      callId,
      url,
      ...(requests === undefined ? {} : { requests }),
    };
  }

  get hasCalled(): boolean {
    return this.#called.length > 0;
  }

  get hasPending(): boolean {
    return this.#pending.length > 0;
  }

  get waitsForPerson(): boolean {
    return this.#pending.some(waitsForPerson);
  }

  /** A line for each call that waits for somebody, with the link where that is done. */
  requests(): string {
    const lines = this.#pending.filter(waitsForPerson).map(({ tool, call_id: id, url }) => {
      const question = this.#questions.get(id);
      return question === undefined
        ? `'${tool}' waits for approval (call ${id}): ${url}`
        : `'${tool}' asks for input (call ${id}): ${url}\n${question}`;
    });
    return lines.join("\n");
  }

  /** Undefined where no tool was called. */
  execution(session: string, stoppedBy: ToolExecution["stopped_by"]): ToolExecution | undefined {
    if (!this.hasCalled) return undefined;
    return {
      executed: true,
      tools_called: this.#called,
      session_id: session,
      workspace_path: `/mcp_workspaces/${session}`,
      ...(this.hasPending ? { pending: this.#pending } : {}),
      ...(stoppedBy === undefined ? {} : { stopped_by: stoppedBy }),
    };
  }
}

function waitsForPerson({ reason }: PendingCall): boolean {
  return reason !== "async";
}

/** Sends a frame to one open client connection. Contract: test/contract/push.ts. */
export interface Push {
  /** `gone` where the connection no longer exists; the caller forgets it. */
  send(connectionId: string, frame: string): Promise<"sent" | "gone">;
}

/** To connections that no process of ours holds. */
export interface RemotePush extends Push {
  /** Closes it; one that no longer exists is closed. */
  end(connectionId: string): Promise<void>;
}

/** The fields of a message header that identify a request, its type and its sender. */
export interface Header {
  readonly msg_id?: string;
  readonly msg_type?: string;
  readonly session?: string;
  readonly subshell_id?: string | null;
}

/** A status message of a kernel. */
export interface StatusMessage {
  readonly header: Header;
  readonly parent_header: Header;
  readonly content: { readonly execution_state?: string };
}

const MAIN_SHELL = '';

/**
 * Tracks which execute requests one kernel is running, no matter which client sent them.
 *
 * A kernel publishes `busy` and `idle` for every message that it handles, including messages on its control
 * channel and in subshells. The `idle` of such a message does not mean that the running cell has ended.
 */
export class Executions {
  private session: string | undefined;
  private known = false;
  /**
   * The message id of the running request in each subshell. A subshell handles one request at a time, so the
   * next request replaces the previous one even if the previous one's `idle` was lost.
   */
  private readonly requests = new Map<string, string>();

  /** Whether any execute request is running; null until a message shows it. */
  get running(): boolean | null {
    return this.known ? this.requests.size > 0 : null;
  }

  /**
   * Process a status message. `client` is the id of the session that this page uses for its requests. Return
   * whether the message shows that a new process has replaced the kernel's process.
   */
  receive({ header, parent_header: parent, content }: StatusMessage, client: string): boolean {
    let replaced = false;
    // A restarted kernel has a new session id. Some kernels (such as IRkernel) have no session id and send
    // the request's session id instead.
    if (header.session !== this.session && header.session !== parent.session) {
      replaced = this.session !== undefined;
      this.session = header.session;
      this.requests.clear();
    }
    const shell = parent.subshell_id ?? MAIN_SHELL;
    if (parent.msg_type === 'execute_request' && parent.msg_id !== undefined) {
      this.known = true;
      if (content.execution_state === 'busy') {
        this.requests.set(shell, parent.msg_id);
      } else if (content.execution_state === 'idle' && this.requests.get(shell) === parent.msg_id) {
        this.requests.delete(shell);
      }
    } else if (
      parent.msg_type === 'kernel_info_request' &&
      parent.session === client &&
      shell === MAIN_SHELL
    ) {
      // JupyterLab sends a kernel_info_request to the main shell when it connects. The shell handles the
      // request only when no cell is running, so any earlier cell has ended.
      this.known = true;
      this.requests.delete(MAIN_SHELL);
    }
    return replaced;
  }

  /** Forget all requests after the kernel's process has ended. */
  reset(): void {
    this.known = true;
    this.requests.clear();
  }
}

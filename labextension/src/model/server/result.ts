import type { TranslationBundle } from '@jupyterlab/translation';

/**
 * Why a request has failed.
 *
 * `absent`: the server has no such route, because the server extension is not enabled or is older than this page.
 * `refused`: the login has expired, or does not permit the request. `busy`: the server has too many clients.
 * `failed`: gpuwidget has rejected the request. `foreign`: the reply can't be read, so the server has another version
 * of gpuwidget. `unreachable`: there was no reply of gpuwidget.
 */
export type FailureKind = 'absent' | 'refused' | 'busy' | 'failed' | 'foreign' | 'unreachable';

/** A failed request, with a sentence to display. */
export interface Failure {
  readonly kind: FailureKind;
  readonly reason: string;
}

/** The result of a request. */
export type Result<Value> = { readonly kind: 'ok'; readonly value: Value } | Failure;

/** Return a sentence about a failure for which the server has given no reason. */
export function failureText(trans: TranslationBundle, kind: FailureKind): string {
  switch (kind) {
    case 'absent':
      return trans.__(
        "gpuwidget's server extension is not enabled or is older than this page. Restart the server."
      );
    case 'refused':
      return trans.__('The server does not accept this login any more. Reload the page and log in.');
    case 'foreign':
      return trans.__(
        'The server and this page have different versions of gpuwidget. Restart the server, then reload the page.'
      );
    default:
      return trans.__('The server does not answer.');
  }
}

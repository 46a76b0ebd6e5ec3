import type { TranslationBundle } from '@jupyterlab/translation';

import { moment, sentence } from '../../model/format';
import type { ClusterSnapshot } from '../../wire/wire';
import type { ClusterData } from '../../model/cluster/clusterModel';
import { lastValue } from '../../model/freshness';
import { hasErrors } from './quantities';
import { isFree, nodesUp } from './wallRows';

/** Return why the values are missing or old; null if they are current. */
export function clusterNotice(trans: TranslationBundle, data: ClusterData): string | null {
  if (data.kind === 'live') {
    return null;
  }
  const { failure, problem } = data.reason;
  if (failure === null && problem !== null) {
    return problem;
  }
  const time = lastValue(data)?.time ?? null;
  const reason =
    failure === null
      ? trans.__('Reading the cluster…')
      : trans.__('The cluster could not be read: %1', sentence(failure));
  return time === null
    ? reason
    : trans.__('%1 Showing the values from %2.', reason, moment(time, Date.now() / 1000));
}

/** Return what is shown in place of the GPUs if there are none; null if there are some. */
export function clusterEmptyText(
  trans: TranslationBundle,
  data: ClusterData,
  nothingShown: boolean
): string | null {
  if (!nothingShown) {
    return null;
  }
  const snapshot = lastValue(data);
  if (snapshot === null || (snapshot.nodes.length === 0 && snapshot.gpus.length === 0)) {
    return (
      clusterNotice(trans, data) ??
      trans.__('Prometheus reports no GPUs: it does not scrape any exporter that gpuwidget supports.')
    );
  }
  return trans.__('No GPU matches the filter.');
}

/** Return the numbers of GPUs and nodes, the free ones and those with problems, and possibly the time. */
export function clusterSummary(
  trans: TranslationBundle,
  snapshot: ClusterSnapshot,
  withTime: boolean
): string {
  const { nodes, gpus, time } = snapshot;
  const up = nodesUp(snapshot);
  const lostNodes = nodes.length - up.size;
  const lostGpus = gpus.filter(gpu => gpu.lost && up.has(gpu.node)).length;
  const errors = gpus.filter(hasErrors).length;
  const parts = [
    trans._n('%1 GPU', '%1 GPUs', gpus.length),
    trans._n('%1 node', '%1 nodes', nodes.length),
    trans.__('%1 free', gpus.filter(gpu => up.has(gpu.node) && isFree(gpu)).length)
  ];
  if (errors > 0) {
    parts.push(trans.__('%1 with errors', errors));
  }
  if (lostGpus > 0) {
    parts.push(trans._n('%1 lost GPU', '%1 lost GPUs', lostGpus));
  }
  if (lostNodes > 0) {
    parts.push(trans._n('%1 lost node', '%1 lost nodes', lostNodes));
  }
  if (withTime && time !== null) {
    parts.push(moment(time, Date.now() / 1000));
  }
  return parts.join(' · ');
}

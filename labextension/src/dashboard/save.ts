/** Hand a text to the user as a file. */
export function save(name: string, text: string): void {
  // A mark at its beginning, by which spreadsheets know that it is UTF-8.
  const url = URL.createObjectURL(new Blob(['\ufeff', text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
